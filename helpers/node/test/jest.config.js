module.exports = { testMatch: ["**/jest.test.js"] };

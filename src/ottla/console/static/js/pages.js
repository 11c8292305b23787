// All pages of the console. To add one: write its module, and add a line here.
//
// `path` is its address; `:name` in it becomes a property of the page. `load` imports the module with the first visit,
// and `page` is the name of the function in it. Pages with a `title` are in the navigation, in their `section`.
export const PAGES = [
  { path: "/", title: "Overview", section: "Cluster", load: () => import("./pages/overview.js"), page: "Overview" },
  { path: "/brokers/:broker", load: () => import("./pages/broker.js"), page: "Broker" },
  { path: "/brokers/:broker/:tab", load: () => import("./pages/broker.js"), page: "Broker" },
  { path: "/topics", title: "Topics", section: "Data", load: () => import("./pages/topics.js"), page: "Topics" },
  { path: "/topics/:topic", load: () => import("./pages/topic.js"), page: "Topic" },
  { path: "/topics/:topic/:tab", load: () => import("./pages/topic.js"), page: "Topic" },
  { path: "/topics/:topic/partitions/:partition", load: () => import("./pages/storage.js"), page: "Storage" },
  { path: "/groups", title: "Groups", section: "Data", load: () => import("./pages/groups.js"), page: "Groups" },
  { path: "/groups/:group", load: () => import("./pages/group.js"), page: "Group" },
  { path: "/transactions", title: "Transactions", section: "Data", load: () => import("./pages/transactions.js"), page: "Transactions" },
  { path: "/transactions/:transaction", load: () => import("./pages/transactions.js"), page: "Transaction" },
  { path: "/access", title: "Access", section: "Cluster", load: () => import("./pages/access.js"), page: "Access" },
  { path: "/access/:tab", load: () => import("./pages/access.js"), page: "Access" },
  { path: "/schemas", title: "Schemas", section: "Data", load: () => import("./pages/schemas.js"), page: "Schemas" },
  { path: "/schemas/:subject", load: () => import("./pages/subject.js"), page: "Subject" },
  { path: "/requests", title: "Requests", section: "Inside", load: () => import("./pages/requests.js"), page: "Requests" },
  { path: "/clients", title: "Clients", section: "Inside", load: () => import("./pages/clients.js"), page: "Clients" },
  { path: "/quorum", title: "Quorum", section: "Cluster", load: () => import("./pages/quorum.js"), page: "Quorum" },
  { path: "/replicas", title: "Replicas", section: "Inside", load: () => import("./pages/replicas.js"), page: "Replicas" },
  { path: "/powers", title: "Powers", section: "Inside", load: () => import("./pages/powers.js"), page: "Powers" },
  { path: "/learn", title: "Tours", section: "Learn", load: () => import("./pages/learn.js"), page: "Learn" },
  { path: "/learn/:tour", load: () => import("./pages/learn.js"), page: "TourPage" },
];

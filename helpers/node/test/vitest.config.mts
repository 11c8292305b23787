import { defineConfig } from "vitest/config";

export default defineConfig({ test: { include: ["vitest.test.mts"], hookTimeout: 30_000 } });

"""What the interop tests share: client drivers, toolchains, brokers, and a raw socket client."""

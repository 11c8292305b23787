"""What the interop tests share: client drivers, toolchains, and brokers."""

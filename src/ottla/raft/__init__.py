"""The Raft protocol of a KRaft quorum (KIP-595, KIP-630, KIP-853, KIP-996), without network I/O."""

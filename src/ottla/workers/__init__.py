"""All cores: several broker processes on one data folder, one command, one port to bootstrap from.

Each worker is a broker with an id of its own and leads its share of the partitions. The first one is the controller:
it alone writes the metadata log, the checkpoints and the clean-stop marker. The others follow the metadata over a
socket, and hand it what changes the cluster. To clients they look like a cluster of as many brokers.

    supervisor.py   binds the ports, forks the workers, watches over them
    process.py      the life of one worker process
    broker.py       the two kinds of workers
    link.py         messages and calls between workers
    forwarding.py   requests that the controller answers, wherever they arrive
    metadata.py     the metadata as a follower has it; how partitions are spread over the workers
    logs.py         one folder in many hands
    transactions.py markers and checks that cross from worker to worker
"""

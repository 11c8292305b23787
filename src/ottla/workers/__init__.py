"""Uses all cores: several broker processes on the same data folders, with one command and one bootstrap port.

Each worker is a broker with its own id and leads its share of the partitions. The first one is the controller:
only it writes the metadata log, the checkpoints and the clean-stop marker. The others follow the metadata over a
socket, and forward requests that change the cluster to it. To clients they look like a cluster of that many brokers.

    supervisor.py   binds the ports, forks the workers, watches over them
    process.py      the life of one worker process
    topology.py     the surroundings of a worker's broker: the controller, and its followers
    link.py         messages and calls between workers
    channel.py      requests of the Kafka protocol from worker to worker, over a link
    forwarding.py   requests that the controller answers, wherever they arrive
    metadata.py     how a worker follows the metadata, and how partitions are spread over the workers
    checkpoints.py  the files of data folders that several processes share
"""

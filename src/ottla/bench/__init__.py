"""The side-by-side benchmark of `ottla bench`: the same load on two or more brokers, reported as ratios.

model     lines, figures and bars, and the table of all lines
lines/    the lines, by subject; each is a small function that returns its figures
load      the load generator: a child process with raw sockets and pre-encoded frames
targets   the brokers: started here (Ottla, Apache Kafka), or any bootstrap address
runner    interleaves the brokers line by line, takes medians, retries lines that miss a bar
report    writes the table, JSON and Markdown; plot draws the SVG
"""

"""The side-by-side benchmark behind `ottla bench`: the same load on two or more brokers, reported as ratios.

model     what a line, a figure and a bar are, and the one table of lines
lines/    the lines themselves, by subject; each is a small function that returns its figures
load      the load generator: a child process with raw sockets and frames encoded beforehand
targets   the brokers: started here (Ottla, Apache Kafka), or any bootstrap address
runner    interleaves the brokers line by line, takes medians, retries what misses its bar
report    table, JSON and Markdown; plot draws the SVG
"""

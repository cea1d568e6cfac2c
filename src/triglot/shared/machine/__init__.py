"""This machine: files, cores, memory, signals, installed versions."""

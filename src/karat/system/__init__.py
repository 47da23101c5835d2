"""The operating system, git and CI: files, locks, hashes, processes, threads; imports only findings."""

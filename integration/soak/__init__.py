"""A long load on two endpoints, which finds growth of memory, descriptors and threads.

``python -m integration.soak --minutes 60`` starts two endpoints. It runs third-party copies in both
directions, copies by clients, cancelled and purged transfers, and clients that are killed. It
samples both processes, and fits a straight line to each quantity. The soak passes if:

- after a warm-up, no quantity grows faster than :mod:`integration.soak.verdict` permits.
- after the work, each process has at most ``REST_MAX`` more descriptors and threads than before.
- each transfer that was not cancelled, and each client that was not killed, has copied its files
  without a difference.
- each cancelled transfer has ended.
"""

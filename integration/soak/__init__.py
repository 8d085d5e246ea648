"""A long soak of two endpoints, which finds memory, descriptors and threads that grow.

``python -m integration.soak --minutes 60`` starts two endpoints and keeps them busy: third-party
copies both ways, copies of clients, cancelled transfers, purges, and clients that are killed. It
samples memory, descriptors and threads of both processes, and fits a straight line to the samples
of each. The soak passes if all of these are true:

- slopes: after a warm-up, no sampled quantity grows faster than :mod:`integration.soak.verdict`
  permits.
- rest: after the work, each process has as many descriptors and threads as before the work.
- work: each transfer that was not cancelled or killed has copied its files without a difference,
  and each cancelled transfer has ended.
"""

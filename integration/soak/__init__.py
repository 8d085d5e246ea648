"""A long soak of two endpoints, which finds memory, descriptors and threads that grow.

``python -m integration.soak --minutes 60`` starts two endpoints and keeps them busy: third-party
copies both ways, copies of clients, cancelled transfers, purges, and clients that are killed. It
samples both processes and fits a line to each quantity. The verdict has three parts:

- slopes: what grew over the run, after a warm-up, is within what :mod:`integration.soak.verdict`
  allows;
- rest: once nothing runs, descriptors and threads are as many as before the work;
- work: each transfer that was left alone arrived identical, and each cancelled one ended.
"""

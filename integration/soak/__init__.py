"""A long soak of two endpoints, which finds memory, descriptors and threads that grow.

``python -m integration.soak --minutes 60`` starts two endpoints and keeps them busy: third-party
copies both ways, copies of clients, cancelled transfers, purges, and clients that are killed. It
samples both processes and fits a line to each quantity. The verdict has three parts:

- slopes: growth over the run, after a warm-up, is within the limits of
  :mod:`integration.soak.verdict`;
- rest: after the work, descriptors and threads are as many as before it;
- work: each undisturbed transfer arrived identical, and each cancelled one ended.
"""

"""Every fault at three moments of a transfer between endpoints, with a verdict about each.

``python -m integration.fault_matrix --help`` lists the options.

A *cell* of the matrix is a fault, a moment (the percentage of the data that is durable when the
fault occurs), a set of files, and a form of the object log. For each cell, the program starts a
source endpoint, a sink endpoint and a client, which talk to each other over TLS. The fault occurs,
and afterwards the transfer must end. The verdict then checks that

- the copied tree is identical to the source, and nothing else is left;
- no file ever had a wrong content under its final name: when the fault occurred, while the transfer
  continued, and at the end;
- no success was reported before all data was there;
- the source sent no data that had been reported as durable, and the bytes that it sent twice are
  within the memory of a session plus a sync group.
"""

"""Power loss at any moment of a copy, on a real file system.

``python -m integration.crash_replay --help`` lists the options.

The recorder runs a copy onto ext4 or XFS on a block device of this process
(:mod:`integration.harness.fuse_block`) and records each write and each cache flush. The replayer
then builds possible contents of the disk after a power loss at a point of the recording: all writes
before the last flush, and any subset of the later ones, in any order, the last of them torn. It
mounts the image, so the file system replays its journal, and checks from outside:

- a file under a final name is a complete version, the older or the new one;
- after the copy has ended with exit code 0, every file is complete;
- the same command ends with exit code 0, the tree is identical, and no partial data remains;
- it sends at most the data that the first copy had not yet reported as durable at that point.
"""

"""Power loss at any moment of a copy, on a real file system.

``python -m integration.crash_replay --help`` lists the options.

The recorder runs a copy onto ext4 or XFS on a block device of this process
(:mod:`integration.harness.fuse_block`) and records each write and each cache flush. The replayer
then chooses a point of the recording and builds a disk image that a power loss at this point could
leave. The image contains all writes before the last flush. It also contains any subset of the later
writes, in any order, and one of these writes may be torn. The replayer mounts the image, so the
file system replays its journal. It then checks that

- each file under a final name is a complete old or a complete new version;
- if the first copy had ended with exit code 0 before the power loss, every file is complete;
- the same command, run again, ends with exit code 0, the copied tree is identical to the source,
  and no partial data remains;
- the second run sends at most the data that the first copy had not yet reported as durable.
"""

PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
CREATE TABLE capacities (
    resource TEXT PRIMARY KEY,
    rate INTEGER NOT NULL,
    measured_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE counters (
    transfer TEXT PRIMARY KEY REFERENCES transfers (id) ON DELETE CASCADE,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "counters" VALUES('cancelled','{"files":{"listed":0,"done":0,"failed":0,"skipped":0,"adopted":0,"listing_done":false},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{},"sink":{}}}');
INSERT INTO "counters" VALUES('done','{"files":{"listed":1,"done":1,"failed":0,"skipped":0,"adopted":0,"listing_done":true},"bytes":{"listed":5,"durable":5,"resumed":0,"adopted":0,"sent":5,"read_back":0},"objects":{"sent":1,"resumed":0},"profile":{"source":{"list":0.013,"decide":0.018,"read":0.014,"network":0.008,"credit":0.0,"verdict":0.11},"sink":{"decide":0.016,"arrival":0.048,"write":0.011,"sync":0.077,"publish":0.011}}}');
INSERT INTO "counters" VALUES('failed','{"files":{"listed":0,"done":0,"failed":1,"skipped":0,"adopted":0,"listing_done":true},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{"list":0.0,"verdict":0.0},"sink":{"arrival":0.001}}}');
INSERT INTO "counters" VALUES('many','{"files":{"listed":0,"done":0,"failed":0,"skipped":0,"adopted":0,"listing_done":false},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{},"sink":{}}}');
INSERT INTO "counters" VALUES('paused','{"files":{"listed":0,"done":0,"failed":0,"skipped":0,"adopted":0,"listing_done":false},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{},"sink":{}}}');
INSERT INTO "counters" VALUES('pull','{"files":{"listed":0,"done":0,"failed":0,"skipped":0,"adopted":0,"listing_done":false},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{},"sink":{}}}');
INSERT INTO "counters" VALUES('push','{"files":{"listed":0,"done":0,"failed":0,"skipped":0,"adopted":0,"listing_done":false},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{},"sink":{}}}');
INSERT INTO "counters" VALUES('replicas','{"files":{"listed":0,"done":0,"failed":0,"skipped":0,"adopted":0,"listing_done":false},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{},"sink":{}}}');
INSERT INTO "counters" VALUES('within','{"files":{"listed":0,"done":0,"failed":0,"skipped":0,"adopted":0,"listing_done":false},"bytes":{"listed":0,"durable":0,"resumed":0,"adopted":0,"sent":0,"read_back":0},"objects":{"sent":0,"resumed":0},"profile":{"source":{},"sink":{}}}');
CREATE TABLE labels (
    transfer TEXT NOT NULL REFERENCES transfers (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (transfer, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "numbers" VALUES('seq',9);
CREATE TABLE promises (
    transfer TEXT PRIMARY KEY REFERENCES transfers (id) ON DELETE CASCADE,
    key INTEGER NOT NULL UNIQUE,
    bytes INTEGER,
    deadline INTEGER,
    rate_min INTEGER,
    resources TEXT NOT NULL,
    decided_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE staging (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    direction TEXT NOT NULL,
    request TEXT NOT NULL,
    application TEXT,
    fast_path TEXT NOT NULL,
    slow_path TEXT NOT NULL,
    pinned_until INTEGER,
    evicted_at INTEGER
, staged_at INTEGER, expires_at INTEGER, bytes INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE tickets (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    secret_sha256 BLOB NOT NULL UNIQUE,
    transfer TEXT NOT NULL,
    direction TEXT NOT NULL,
    paths TEXT NOT NULL,
    overwrite TEXT NOT NULL,
    owner TEXT NOT NULL,
    principal TEXT NOT NULL,
    peer_key TEXT NOT NULL,
    issued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    renewable_until INTEGER NOT NULL,
    revoked INTEGER NOT NULL
, weight INTEGER NOT NULL DEFAULT 100, rate_min INTEGER, rate_max INTEGER) STRICT;
CREATE TABLE transfers (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    principal TEXT NOT NULL,
    state TEXT NOT NULL,
    wish TEXT,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    barren INTEGER NOT NULL,
    source INTEGER NOT NULL,
    essence TEXT NOT NULL,
    request TEXT NOT NULL,
    tickets TEXT NOT NULL,
    class TEXT NOT NULL,
    activity TEXT,
    source_url TEXT NOT NULL,
    destination_url TEXT NOT NULL,
    not_before INTEGER,
    bound_seconds INTEGER,
    submitted_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    next_try_at INTEGER,
    error TEXT,
    failures TEXT NOT NULL,
    notices TEXT NOT NULL
, priority INTEGER NOT NULL DEFAULT 3, deadline INTEGER, held_until INTEGER, number INTEGER, line TEXT GENERATED ALWAYS AS
    (owner || char(31) || COALESCE(activity, '')) VIRTUAL, source_host TEXT GENERATED ALWAYS AS
    (CASE instr(source_url, '://') WHEN 0 THEN '' ELSE
        substr(source_url, instr(source_url, '://') + 3,
            instr(substr(source_url || '/', instr(source_url, '://') + 3), '/') - 1) END) VIRTUAL, destination_host TEXT GENERATED ALWAYS AS
    (CASE instr(destination_url, '://') WHEN 0 THEN '' ELSE
        substr(destination_url, instr(destination_url, '://') + 3,
            instr(substr(destination_url || '/', instr(destination_url, '://') + 3), '/') - 1) END)
    VIRTUAL, pair TEXT GENERATED ALWAYS AS
    (source_host || char(31) || destination_host || char(31) || owner) VIRTUAL, purged INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "transfers" VALUES('pull',1,'alice','alice@https://a.example','queued',NULL,1,1,0,0,0,'{"sources":[{"url":"dray://b.example/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"deadline":"2100-01-02T00:00:00.000Z","not_before":"2100-01-01T00:00:00.000Z","admission":"best_effort","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"pull","sources":[{"url":"dray://b.example/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"deadline":"2100-01-02T00:00:00.000Z","not_before":"2100-01-01T00:00:00.000Z","admission":"best_effort","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','deadline',NULL,'dray://b.example/data/x','/data/y',4102444800000,NULL,1795722918214,NULL,NULL,NULL,NULL,'[]','["not promised: the rate of the endpoint''s rate, the rate of the root data is not known yet; configure `rate` at the endpoint","not promised yet: its size is unknown until its files are listed; a submission may give it as bytes_expected (dray cp: --bytes)"]',3,4102531200000,4102444800000,1,0);
INSERT INTO "transfers" VALUES('push',2,'alice','alice@https://a.example','queued',NULL,1,1,0,0,0,'{"sources":[{"url":"/data/x"}],"destination":{"url":"dray://b.example:5000/data/in/"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"push","sources":[{"url":"/data/x"}],"destination":{"url":"dray://b.example:5000/data/in/"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'/data/x','dray://b.example:5000/data/in/',4102444800000,NULL,1795722918353,NULL,NULL,NULL,NULL,'[]','[]',3,NULL,4102444800000,2,0);
INSERT INTO "transfers" VALUES('within',3,'alice','alice@https://a.example','queued',NULL,1,1,0,0,0,'{"sources":[{"url":"dray://A.example:47350/data/x"}],"destination":{"url":"dray://old.example:47350/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"within","sources":[{"url":"dray://A.example:47350/data/x"}],"destination":{"url":"dray://old.example:47350/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'dray://A.example:47350/data/x','dray://old.example:47350/data/y',4102444800000,NULL,1795722918422,NULL,NULL,NULL,NULL,'[]','[]',3,NULL,4102444800000,3,0);
INSERT INTO "transfers" VALUES('many',4,'alice','alice@https://a.example','queued',NULL,1,1,0,0,0,'{"sources":[{"url":"/data/one"},{"url":"/data/two%3F"},{"url":"/data/%FF/"}],"destination":{"url":"dray://b.example/data/in/"},"selection":{"recursive":true,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"many","sources":[{"url":"/data/one"},{"url":"/data/two%3F"},{"url":"/data/%FF/"}],"destination":{"url":"dray://b.example/data/in/"},"selection":{"recursive":true,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'/data/one','dray://b.example/data/in/',4102444800000,NULL,1795722918473,NULL,NULL,NULL,NULL,'[]','[]',3,NULL,4102444800000,4,0);
INSERT INTO "transfers" VALUES('replicas',5,'alice','alice@https://a.example','queued',NULL,1,1,0,0,0,'{"sources":[{"url":"dray://b.example/data/x"}],"replicas":[{"url":"dray://c.example/data/x"},{"url":"dray://old.example:47350/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"replicas","sources":[{"url":"dray://b.example/data/x"}],"replicas":[{"url":"dray://c.example/data/x"},{"url":"dray://old.example:47350/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'dray://b.example/data/x','/data/y',4102444800000,NULL,1795722918519,NULL,NULL,NULL,NULL,'[]','[]',3,NULL,4102444800000,5,0);
INSERT INTO "transfers" VALUES('paused',6,'alice','alice@https://a.example','paused',NULL,2,1,0,0,0,'{"sources":[{"url":"dray://b.example/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"paused","sources":[{"url":"dray://b.example/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'dray://b.example/data/x','/data/y',4102444800000,NULL,1795722918525,NULL,NULL,NULL,NULL,'[]','[]',3,NULL,NULL,6,0);
INSERT INTO "transfers" VALUES('cancelled',7,'alice','alice@https://a.example','cancelled',NULL,2,1,0,0,0,'{"sources":[{"url":"dray://b.example/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"cancelled","sources":[{"url":"dray://b.example/data/x"}],"destination":{"url":"/data/y"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"not_before":"2100-01-01T00:00:00.000Z","priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'dray://b.example/data/x','/data/y',4102444800000,NULL,1795722918560,NULL,1795722918638,NULL,NULL,'[]','[]',3,NULL,NULL,7,0);
INSERT INTO "transfers" VALUES('done',8,'alice','alice@https://a.example','done',NULL,3,1,1,0,0,'{"sources":[{"url":"/data/x"}],"destination":{"url":"/data/copy"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"done","sources":[{"url":"/data/x"}],"destination":{"url":"/data/copy"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'/data/x','/data/copy',NULL,NULL,1795722918675,1795722918679,1795722918879,NULL,NULL,'[]','[]',3,NULL,NULL,8,0);
INSERT INTO "transfers" VALUES('failed',9,'alice','alice@https://a.example','failed',NULL,3,1,1,0,0,'{"sources":[{"url":"/data/none"}],"destination":{"url":"/data/copy"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','{"id":"failed","sources":[{"url":"/data/none"}],"destination":{"url":"/data/copy"},"selection":{"recursive":false,"include":[],"exclude":[],"links":"keep"},"priority":3,"weight":100,"labels":{},"durability":"file","overwrite":"if-different","verify":false,"resume":"verify","xattrs":false,"checksum_attributes":false,"order":"layout","clear_data":false,"bind":[]}','[{"ticket":null,"key":null,"address":null},{"ticket":null,"key":null,"address":null}]','background',NULL,'/data/none','/data/copy',NULL,NULL,1795722918885,1795722918889,1795722918946,NULL,'{"kind":"not_found","status":"permanent","end":"source","operation":"list","file":"copy","cause":"its source is /data/none: No such file or directory","remedy":"check the path","message":"cannot list at the source: copy: not found (its source is /data/none: No such file or directory); check the path"}','[{"path":"copy","error":{"kind":"not_found","status":"permanent","end":"source","operation":"list","file":"copy","cause":"its source is /data/none: No such file or directory","remedy":"check the path","message":"cannot list at the source: copy: not found (its source is /data/none: No such file or directory); check the path"}}]','[]',3,NULL,NULL,9,0);
CREATE INDEX transfers_owner ON transfers (owner, seq);
CREATE INDEX transfers_state ON transfers (state, seq);
CREATE INDEX transfers_ended ON transfers (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX transfers_bound ON transfers (state) WHERE bound_seconds IS NOT NULL;
CREATE INDEX labels_value ON labels (key, value, transfer);
CREATE INDEX tickets_owner ON tickets (owner, seq);
CREATE INDEX tickets_end ON tickets (renewable_until);
CREATE INDEX staging_owner ON staging (owner, seq);
CREATE INDEX staging_fast ON staging (fast_path);
CREATE INDEX transfers_held ON transfers (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX transfers_purge ON transfers (seq) WHERE state = 'cancelled' AND wish IS NOT NULL;
CREATE INDEX staging_expires ON staging (expires_at)
    WHERE expires_at IS NOT NULL AND evicted_at IS NULL;
CREATE INDEX staging_evicted ON staging (evicted_at) WHERE evicted_at IS NOT NULL;
CREATE INDEX transfers_line
    ON transfers (class, priority, line, deadline IS NULL, deadline, seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_age ON transfers (class, priority, owner, seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_pair ON transfers (class, pair, seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_oldest ON transfers (seq)
    WHERE state = 'queued' AND held_until IS NULL;
CREATE INDEX transfers_live ON transfers (owner) WHERE ended_at IS NULL;
CREATE INDEX tickets_transfer ON tickets (transfer, seq);
CREATE INDEX transfers_secrets ON transfers (ended_at)
    WHERE ended_at IS NOT NULL AND wish IS NULL AND instr(tickets, '"ticket":"drt_') > 0;
PRAGMA user_version = 11;
COMMIT;

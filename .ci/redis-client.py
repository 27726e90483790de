"""Python's redis against `wakeful serve kv` on this port, in RESP2: newer versions would begin with RESP3, which is refused."""

import sys

import redis


def refused(call):
    try:
        call()
    except redis.ResponseError as error:
        return str(error)
    raise AssertionError("it was accepted")


client = redis.Redis(port=int(sys.argv[1]), protocol=2, client_name="ci", socket_timeout=20)
assert client.ping()
client.flushall()
assert client.set("key", b"a\r\n\0value") and client.get("key") == b"a\r\n\0value"
assert client.set("key", "other", nx=True) is None
assert client.set("key", "other", xx=True, get=True) == b"a\r\n\0value"
assert client.incr("number") == 1 and client.decr("number", 3) == -2
assert client.mset({f"k{n}": n for n in range(100)})
assert client.mget([f"k{n}" for n in range(100)] + ["none"]) == [b"%d" % n for n in range(100)] + [None]
assert client.exists("k0", "k1", "none") == 2 and client.delete("k0", "k1", "none") == 2
assert client.dbsize() == 100
with client.pipeline(transaction=False) as pipeline:
    for n in range(10_000):
        pipeline.set(f"k{n % 100}", n)
        pipeline.get(f"k{n % 100}")
    assert pipeline.execute() == [x for n in range(10_000) for x in (True, b"%d" % n)]
assert client.client_getname() in ("ci", b"ci") and client.client_id() > 0
assert client.config_get("maxmemory")["maxmemory"] in ("67108864", b"67108864")
assert client.command_count() == len(client.command())
info = client.info()
assert info["connected_clients"] >= 1 and info["db0"]["keys"] == 102
assert "expire" in refused(lambda: client.set("key", "x", ex=1))
assert "unknown command" in refused(lambda: client.lpush("list", 1))
kept = 0
while True:
    try:
        client.set(f"large{kept}", b"x" * 1_000_000)
    except redis.ResponseError as error:  # OutOfMemoryError is one
        assert "command not allowed" in str(error), error
        break
    kept += 1
    assert kept < 100
assert kept > 50 and client.get("large0") is not None
client.flushall()
assert client.info("memory")["used_memory"] == 0
print(f"python's redis {redis.__version__}: commands, a pipeline of 20,000, refusals, and the memory cap")

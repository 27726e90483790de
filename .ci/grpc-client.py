"""Drives `wakeful serve rpc` with Python's grpcio: ADDR, and the server's process, which is told to drain in the end."""

import os
import signal
import sys
import threading

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from google.protobuf.descriptor_pool import DescriptorPool
from wakeful.echo.v1 import echo_pb2 as pb
from wakeful.echo.v1 import echo_pb2_grpc

addr, server = sys.argv[1], int(sys.argv[2])
# A hang is a failure.
threading.Timer(60, lambda: os._exit(3)).start()
channel = grpc.insecure_channel(addr, options=[("grpc.max_receive_message_length", 64 << 20)])
echo = echo_pb2_grpc.EchoStub(channel)


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError("it did not fail")


def requests(count):
    return (pb.EchoRequest(message=str(n), payload=b"x" * n) for n in range(count))


assert echo.Unary(pb.EchoRequest(message="hi")).message == "hi"
large = b"\7" * (3 << 20)
assert echo.Unary(pb.EchoRequest(payload=large)).payload == large
assert echo.Unary(pb.EchoRequest(payload=large), compression=grpc.Compression.Gzip).payload == large
answers = list(echo.ServerStream(pb.ServerStreamRequest(echo=pb.EchoRequest(message="s"), count=1000)))
assert [answer.number for answer in answers] == list(range(1000))
told = echo.ClientStream(requests(1000))
assert (told.messages, told.payload_bytes, told.message) == (1000, sum(range(1000)), "999")
assert [answer.message for answer in echo.BidiStream(requests(1000))] == [str(n) for n in range(1000)]
print("grpcio: all four kinds of call, 3 MiB at once, gzip")

for code in grpc.StatusCode:
    if code is not grpc.StatusCode.OK:
        fail = pb.EchoRequest(fail=pb.Failure(code=code.value[0], message="as asked: ü"))
        assert code_of(lambda: echo.Unary(fail)) == (code, "as asked: ü"), code
        assert code_of(lambda: list(echo.BidiStream(iter([fail]))))[0] == code
too_large = pb.EchoRequest(payload=b"\7" * (5 << 20))
assert code_of(lambda: echo.Unary(too_large))[0] == grpc.StatusCode.OUT_OF_RANGE
bomb = pb.EchoRequest(payload=bytes(32 << 20))
assert code_of(lambda: echo.Unary(bomb, compression=grpc.Compression.Gzip))[0] in (
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INTERNAL,
)
unknown = channel.unary_unary("/wakeful.echo.v1.Echo/Missing")
assert code_of(lambda: unknown(b""))[0] == grpc.StatusCode.UNIMPLEMENTED
unknown = channel.unary_unary("/no.such.Service/Call")
assert code_of(lambda: unknown(b""))[0] == grpc.StatusCode.UNIMPLEMENTED
print("grpcio: every status code, messages that are too large, methods that there are not")

slow = pb.EchoRequest(delay_ms=60000)
late = grpc.StatusCode.DEADLINE_EXCEEDED
assert code_of(lambda: echo.Unary(slow, timeout=0.2))[0] == late
assert code_of(lambda: list(echo.ServerStream(pb.ServerStreamRequest(count=9, interval_ms=60000), timeout=0.2)))[0] == late
call = echo.Unary.future(slow)
call.cancel()
print("grpcio: deadlines and a cancelled call")

health = health_pb2_grpc.HealthStub(channel)
serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
for service in ["", "wakeful.echo.v1.Echo"]:
    assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == serving
missing = health_pb2.HealthCheckRequest(service="missing")
assert code_of(lambda: health.Check(missing))[0] == grpc.StatusCode.NOT_FOUND
reflected = ProtoReflectionDescriptorDatabase(channel)
assert "wakeful.echo.v1.Echo" in reflected.get_services()
service = DescriptorPool(reflected).FindServiceByName("wakeful.echo.v1.Echo")
assert [method.name for method in service.methods] == ["Unary", "ServerStream", "ClientStream", "BidiStream"]
print("grpcio: health and reflection")

# Streams of each kind stay open; the server drains.
watch = health.Watch(health_pb2.HealthCheckRequest(service=""))
assert next(watch).status == serving
downloads = echo.ServerStream(pb.ServerStreamRequest(count=1 << 40, interval_ms=10))
next(downloads)
release = threading.Event()


def held():
    yield pb.EchoRequest(message="first")
    release.wait()


upload = echo.ClientStream.future(held())
talk = echo.BidiStream(held())
assert next(talk).message == "first"
unary = echo.Unary.future(pb.EchoRequest(message="in flight", delay_ms=1500))
# Its request is on its way before this one's answer.
assert echo.Unary(pb.EchoRequest(message="and")).message == "and"
os.kill(server, signal.SIGTERM)
assert next(watch).status == not_serving
for stream in [watch, downloads, talk]:
    code, details = code_of(lambda: list(stream))
    assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "the server is draining"), (code, details)
assert code_of(upload.result)[0] == grpc.StatusCode.UNAVAILABLE
assert unary.result().message == "in flight"
release.set()
print("grpcio: at the drain health says so, streams end with UNAVAILABLE, and the call in flight is finished")
os._exit(0)

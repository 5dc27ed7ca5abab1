"""Under load, with real processes: what ends, goes away or is exchanged costs no call.

Run by `.ci/run load`, with the client package of Python installed. RELIGHT names the binary, LOAD_SECONDS how long PostgreSQL
is gone (10; a minute by hand).
"""

import os
import socket
import ssl
import subprocess
import time

import certificates
import pytest
import relight
from callers import Load, plain, streamed
from servers import target, wait_until

GONE_SECONDS = float(os.environ.get("LOAD_SECONDS", "10"))


def test_a_replica_that_ends_with_200_calls_and_streams_in_flight_loses_none(replicas, postgres):
    started = replicas(2, postgres.url)
    with Load(target(started), 100, plain) as calls, Load(target(started), 100, streamed) as streams:
        wait_until(lambda: started[0].metric("relight_inflight") >= 60, "both replicas are busy")
        took = started[0].stop(within=30)
        time.sleep(2)
    assert calls.failed() == {} and streams.failed() == {}
    assert calls.outcomes["answered"] > 100 and streams.outcomes["answered"] >= 100
    said = " ".join(started[0].messages())
    assert "draining" in said and "stopped" in said
    print(f"{calls.outcomes['answered']} calls, {streams.outcomes['answered']} streams; ended after {took:.1f} s")


def test_three_replicas_restarted_one_by_one_fail_no_call(replicas, postgres):
    started = replicas(3, postgres.url)
    with Load(target(started), 24, plain) as calls, Load(target(started), 12, streamed) as streams:
        for replica in started:
            time.sleep(1)
            replica.stop()
            replica.start()
        time.sleep(2)
    assert calls.failed() == {} and streams.failed() == {}
    assert calls.outcomes["answered"] > 100 and streams.outcomes["answered"] > 12


def test_a_crash_of_one_of_three_is_survived_by_streams_and_by_calls_with_a_request_id(replicas, postgres):
    started = replicas(3, postgres.url)

    def recorded(client):
        """With a request id, as the client package gives each call: what runs is joined, what ended is returned again."""
        return "answered" if client.invoke("Why?", timeout=90).text else "empty"

    with Load(target(started), 24, recorded) as calls, Load(target(started), 24, streamed) as streams:
        wait_until(lambda: started[1].metric("relight_inflight") >= 8, "the replica is busy")
        started[1].kill()
        time.sleep(5)
        started[1].start()
        time.sleep(2)
    assert calls.failed() == {} and streams.failed() == {}
    assert calls.outcomes["answered"] > 24 and streams.outcomes["answered"] >= 24


@pytest.mark.parametrize("how", ["restarted", "paused", "gone"])
def test_calls_that_need_no_record_go_on_at_their_usual_latency_without_postgresql(replicas, postgres, how):
    [replica] = replicas(1, postgres.url)
    with Load(target([replica]), 16, plain) as calls:
        time.sleep(3)
        usual_until = time.monotonic()
        if how == "restarted":
            postgres.restart()
        elif how == "paused":
            with postgres.paused():
                time.sleep(GONE_SECONDS)
        else:
            postgres.stop()
            time.sleep(GONE_SECONDS)
            unrecorded = replica.metric("relight_journal_unrecorded_total")
            postgres.start()
        over = time.monotonic()
        time.sleep(2)
    assert calls.failed() == {}
    usual, _ = calls.median(0, usual_until)
    without, number = calls.median(usual_until, over)
    print(f"median {usual * 1000:.0f} ms, and {without * 1000:.0f} ms in {number} calls while it was {how}")
    assert without < 2 * usual + 0.1, (usual, without)
    if how == "gone":
        assert unrecorded > 0, "what is not recorded is counted"
        # It is used again by itself.
        wait_until(lambda: replica.metric(r'relight_store_up{.*store="journal".*}') == 1, "the journal is back")
        with relight.Client(target([replica])) as client:
            assert client.invoke("Why?", thread_id="after", timeout=60).text


def signed(folder, authority):
    """A certificate for `localhost` that an authority (certificate, key) signed, and its key."""
    folder.mkdir()
    request, certificate, key = folder / "request.pem", folder / "cert.pem", folder / "key.pem"
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=relight"]
    new += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(request)]
    sign = ["openssl", "x509", "-req", "-in", str(request), "-CA", str(authority[0]), "-CAkey", str(authority[1]), "-days", "2"]
    for command in (new, [*sign, "-copy_extensions", "copy", "-out", str(certificate)]):
        subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def test_certificates_are_exchanged_under_load_without_a_failed_handshake(tmp_path, replicas):
    authority = certificates.authority(tmp_path)
    tls = relight.Tls(ca=authority[0].read_bytes(), server_name="localhost")
    certificate, key = signed(tmp_path / "tls", authority)
    [replica] = replicas(1, "memory", tls={"cert_file": str(certificate), "key_file": str(key)})
    where = f"127.0.0.1:{replica.port}"
    context = ssl.create_default_context(cafile=str(authority[0]))
    context.set_alpn_protocols(["h2"])

    def handshake(_):
        """A new connection. Not by gRPC, whose channels share connections and give up on them by themselves."""
        with socket.create_connection(("127.0.0.1", replica.port), timeout=30) as connected:
            with context.wrap_socket(connected, server_hostname="localhost") as secured:
                return "answered" if secured.selected_alpn_protocol() == "h2" else "no HTTP/2"

    with Load(where, 4, handshake) as handshakes, Load(where, 8, plain, tls=tls) as calls:
        for number in range(3):
            time.sleep(1)
            renewed, renewed_key = signed(tmp_path / f"renewed-{number}", authority)
            expected = renewed.read_text(encoding="utf-8")
            renewed_key.replace(key)
            renewed.replace(certificate)
            wait_until(lambda: ssl.get_server_certificate(("127.0.0.1", replica.port)) == expected, "it is served")
    assert handshakes.failed() == {} and calls.failed() == {}
    assert handshakes.outcomes["answered"] > 20 and calls.outcomes["answered"] > 20

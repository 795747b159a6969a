"""Who is let in: the real server with a token and with TLS, asked by real clients."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing
import trustme
from click.testing import CliRunner

from streamer import client
from streamer.commands.top import command as top
from streamer.config import WebConfig
from streamer.views import web
from streamer.views.listener import WebError, listen, url_of
from streamer.views.tls import ServerConfig
from streamer.views.token import Token
from tests.dashboards.servers import answer, prometheus, until
from tests.hub.scene import scene

SECRET = "correct-horse-battery-staple"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    return written(tmp_path / "token", SECRET)


def written(file: Path, text: str) -> Path:
    """In place of what stood there, at once, as a token is exchanged."""
    new = file.with_suffix(".new")
    new.write_text(f"{text}\n")
    new.chmod(0o600)
    new.replace(file)
    return file


@asynccontextmanager
async def served(config: WebConfig) -> AsyncIterator[str]:
    hub, _ = scene()
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(web.serve, hub, config)
            nursery.cancel_scope.cancel()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


PATHS = ["/", "/metrics", "/readyz", "/api/hot", "/api/live", "/api/flame", "/api/statistics", "/main.js",
         "/querier.v1.QuerierService/ProfileTypes", "/no/such/path"]  # fmt: skip


async def test_without_the_token_nothing_but_health_is_told(token: Path) -> None:
    async with served(WebConfig(port=0, token_file=token)) as url, httpx.AsyncClient(base_url=url) as http:
        for path in PATHS:
            for method in ("GET", "POST"):
                refused = await http.request(method, path)
                assert refused.status_code == 401, path
                assert [c.split()[0] for c in refused.headers.get_list("www-authenticate")] == ["Bearer", "Basic"]
                why = refused.json()["error"] if path.startswith("/api/") else refused.text.strip()
                assert why == "a token is asked for here"
        assert (await http.get("/healthz")).text == "ok\n"


@pytest.mark.parametrize(
    "headers",
    [
        bearer(SECRET + "x"), bearer(SECRET[:-1]), {"Authorization": SECRET}, {"Authorization": "Bearer"},
        {"Authorization": f"Digest {SECRET}"}, basic("prometheus", "wrong"), basic(SECRET, ""),
        {"Authorization": "Basic !"}, {"Authorization": f"Basic {SECRET}"}, {"Authorization": "Bearer \xe9" * 9},
    ],
)  # fmt: skip
async def test_another_token_is_refused(token: Path, headers: dict[str, str]) -> None:
    raw = [(name, value.encode("latin-1")) for name, value in headers.items()]
    async with served(WebConfig(port=0, token_file=token)) as url, httpx.AsyncClient(base_url=url) as http:
        refused = await http.get("/api/hot", headers=raw)  # type: ignore[arg-type]
        assert (refused.status_code, refused.json()["error"]) == (401, "not the token that is asked for here")


async def test_two_tokens_are_none(token: Path) -> None:
    async with served(WebConfig(port=0, token_file=token)) as url, httpx.AsyncClient(base_url=url) as http:
        both = [("Authorization", f"Bearer {SECRET}"), ("Authorization", "Bearer other-other-other")]
        assert (await http.get("/metrics", headers=both)).status_code == 401


async def test_with_the_token_all_is_told_also_as_a_password(token: Path) -> None:
    async with served(WebConfig(port=0, token_file=token)) as url, httpx.AsyncClient(base_url=url) as http:
        for headers in (bearer(SECRET), {"Authorization": f"bearer  {SECRET}"}, basic("any", SECRET)):
            assert "streamer_method_share_ratio" in (await http.get("/metrics", headers=headers)).text
            assert (await http.get("/", headers=headers)).status_code == 200


async def test_a_token_is_exchanged_while_it_serves(token: Path) -> None:
    async with served(WebConfig(port=0, token_file=token)) as url, httpx.AsyncClient(base_url=url) as http:

        async def status(text: str) -> int:
            return (await http.get("/readyz", headers=bearer(text))).status_code

        written(token, "another-and-longer-one")
        await when(lambda: status("another-and-longer-one"), 200)
        assert await status(SECRET) == 401


async def when(what: Callable[[], Awaitable[int]], value: int) -> None:
    while await what() != value:  # noqa: ASYNC110 (of the server, by its answers alone)
        await trio.sleep(0.02)


def test_a_file_that_goes_bad_leaves_the_token_in_force(token: Path) -> None:
    def admitted() -> bool:
        asked.refresh()
        return asked.admits("/metrics", [f"Bearer {SECRET}".encode()])

    asked = Token(token)
    assert admitted()
    written(token, "short")
    assert admitted()
    token.unlink()
    assert admitted()
    written(token, "another-and-longer-one")
    assert not admitted()
    written(token, SECRET)
    assert admitted()


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("short", 0o600, "must hold 16 to 1024"),
        ("", 0o600, "must hold 16 to 1024"),
        ("two words of a long text", 0o600, "must hold 16 to 1024"),
        ("ä" * 20, 0o600, "must hold 16 to 1024"),
        ("x" * 1025, 0o600, "must hold 16 to 1024"),
        ("x" * 2000, 0o600, "2000 bytes are more than"),
        (SECRET, 0o604, "may be read or changed by others: chmod 600"),
        (SECRET, 0o620, "may be read or changed by others: chmod 600"),
    ],
)
def test_a_file_that_is_no_token_is_refused_before_anything_listens(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(WebError, match=f"token: .*{why}"):
        listen(WebConfig(port=0, token_file=file))
    with pytest.raises(WebError, match=r"token: .*No such file"):
        listen(WebConfig(port=0, token_file=tmp_path / "none"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(WebError, match=r"token: .*a FIFO"):
        listen(WebConfig(port=0, token_file=tmp_path / "pipe"))


@pytest.mark.parametrize("spoilt", ["", None])
async def test_a_hub_that_is_started_again_without_a_good_token_lets_nobody_in_until_there_is_one(
    token: Path, spoilt: str | None
) -> None:
    config = WebConfig(port=0, token_file=token)
    hub, _ = scene()
    with listen(config) as listener, trio.fail_after(120):
        written(token, spoilt or "")
        if spoilt is None:
            await trio.Path(token).unlink()
        async with trio.open_nursery() as nursery:
            url = await nursery.start(web.serve, hub, config, listener)
            async with httpx.AsyncClient(base_url=url) as http:
                for headers in ({}, bearer(SECRET), bearer("x")):
                    for path in ("/readyz", "/metrics", "/api/hot"):
                        refused = await http.get(path, headers=headers)
                        assert refused.status_code == 503
                        assert "nobody is let in: the file of the token cannot be read" in refused.text
                        assert "www-authenticate" not in refused.headers
                assert (await http.get("/healthz")).text == "ok\n"
                written(token, SECRET)

                async def status() -> int:
                    return (await http.get("/api/hot", headers=bearer(SECRET))).status_code

                await when(status, 200)
                assert (await http.get("/api/hot")).status_code == 401
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "prod-7.example"])
def test_beyond_loopback_a_token_or_leave_is_needed(host: str, token: Path) -> None:
    with pytest.raises(WebError, match=r"is not loopback.*--token-file.*--anyone"):
        listen(WebConfig(host=host, port=0))
    for allowed in (
        WebConfig(host="0.0.0.0", port=0, anyone=True),
        WebConfig(host="0.0.0.0", port=0, token_file=token),
    ):
        listen(allowed).close()
    for loopback in ("127.0.0.1", "localhost", "127.9.9.9"):
        listen(WebConfig(host=loopback, port=0)).close()


# ---- TLS


class Pair:
    """A certificate for this host, by an authority of its own."""

    def __init__(self, directory: Path) -> None:
        self.certificate, self.key = directory / "certificate.pem", directory / "key.pem"
        self.renew()

    def renew(self) -> None:
        self.authority = trustme.CA()
        made = self.authority.issue_cert("localhost", "127.0.0.1")
        self.key.write_bytes(made.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))

    def config(self, token: Path | None = None) -> WebConfig:
        return WebConfig(port=0, tls_certificate=self.certificate, tls_key=self.key, token_file=token)

    def trust(self) -> ssl.SSLContext:
        trusted = ssl.create_default_context()
        self.authority.configure_trust(trusted)
        return trusted

    def client(self, url: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=url, verify=self.trust())


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


async def test_tls_alone_is_spoken_and_by_a_known_authority(pair: Pair) -> None:
    async with served(pair.config()) as url:
        assert url.startswith("https://127.0.0.1:")
        async with pair.client(url) as http:
            assert "streamer_build_info" in (await http.get("/metrics")).text
        async with httpx.AsyncClient(base_url=url) as stranger:
            with pytest.raises(httpx.ConnectError):
                await stranger.get("/metrics")
        async with httpx.AsyncClient(base_url=url.replace("https", "http")) as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get("/metrics")
        async with pair.client(url) as http:  # those have not hurt it
            assert (await http.get("/healthz")).text == "ok\n"


async def test_a_renewed_certificate_is_taken_up(pair: Pair) -> None:
    async with served(pair.config()) as url:
        pair.renew()

        async def status() -> int:
            async with pair.client(url) as after:
                try:
                    return (await after.get("/healthz")).status_code
                except httpx.ConnectError:
                    return 0

        await when(status, 200)


def shakes_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Whether a client with that trust takes the server for localhost."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True),
            client.wrap_bio(to_client, to_server, server_hostname="localhost")]  # fmt: skip
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


def test_half_of_a_pair_leaves_the_certificate_in_force(pair: Pair) -> None:
    config = ServerConfig(pair.certificate, pair.key)
    context = config.create_ssl_context()
    assert context is not None
    before, key = pair.trust(), pair.key.read_bytes()
    pair.renew()
    certificate, renewed = pair.certificate.read_bytes(), pair.key.read_bytes()
    for state in ((certificate[: len(certificate) // 2], key), (certificate, key), (certificate, renewed[:-40])):
        pair.certificate.write_bytes(state[0])
        pair.key.write_bytes(state[1])
        config.refresh()
        assert shakes_hands(context, before)
    pair.key.write_bytes(renewed)
    assert not shakes_hands(context, pair.trust())
    config.refresh()
    assert shakes_hands(context, pair.trust())
    assert not shakes_hands(context, before)


def test_a_pair_that_is_none_is_refused_before_anything_listens(pair: Pair, tmp_path: Path) -> None:
    for config, why in (
        (WebConfig(port=0, tls_certificate=pair.certificate), "needs both a certificate and its key"),
        (WebConfig(port=0, tls_certificate=pair.certificate, tls_key=tmp_path / "none"), "No such file"),
        (WebConfig(port=0, tls_certificate=pair.certificate, tls_key=pair.certificate), "TLS: "),
    ):
        with pytest.raises(WebError, match=why):
            listen(config)
    (tmp_path / "other").mkdir()
    other = Pair(tmp_path / "other")
    with pytest.raises(WebError, match="KEY_VALUES_MISMATCH"):
        listen(WebConfig(port=0, tls_certificate=pair.certificate, tls_key=other.key))


async def test_a_hub_that_is_started_again_without_a_certificate_works_and_answers_when_there_is_one(
    pair: Pair,
) -> None:
    config = pair.config()
    hub, _ = scene()
    key = pair.key.read_bytes()
    with listen(config) as listener, trio.fail_after(120):
        pair.key.write_bytes(key[:-40])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(web.serve, hub, config, listener)
            await trio.testing.wait_all_tasks_blocked()
            assert hub.ill() == []
            pair.key.write_bytes(key)
            async with pair.client(url_of(listener, config)) as http:
                assert (await http.get("/healthz")).text == "ok\n"
            nursery.cancel_scope.cancel()


# ---- others who read


@pytest.mark.peer
async def test_prometheus_scrapes_with_the_token_over_tls(pair: Pair, token: Path, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    pair.authority.cert_pem.write_to_path(str(ca))
    async with served(pair.config(token)) as url:
        target = {"static_configs": [{"targets": [url.removeprefix("https://")]}], "scheme": "https",
                  "tls_config": {"ca_file": str(ca)}}  # fmt: skip
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": "let in", **target, "authorization": {"credentials_file": str(token)}},
                {"job_name": "stranger", **target},
            ],
        }
        with prometheus(tmp_path / "prometheus", config) as peer:
            async with httpx.AsyncClient(base_url=peer) as http:
                await until(http, 'topk(1, streamer_method_share_ratio{job="let in"})')
                (up,) = await until(http, 'up{job="stranger"}')
                assert up["value"][1] == "0"
                assert await answer(http, 'streamer_build_info{job="stranger"}') == []
                targets = (await http.get("/api/v1/targets")).json()["data"]["activeTargets"]
                assert {t["lastError"] for t in targets} == {"", "server returned HTTP status 401 "}


async def test_our_own_commands_take_token_and_certificate_from_the_settings(
    pair: Pair, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(pair.config(token)) as url:

        async def shown() -> tuple[int, str]:
            client._opener.cache_clear()
            done = await trio.to_thread.run_sync(CliRunner().invoke, top, ["--url", url, "--once"])
            return done.exit_code, done.output

        authority = token.with_name("ca.pem")
        pair.authority.cert_pem.write_to_path(str(authority))
        monkeypatch.setenv("STREAMER_WEB__TLS_CERTIFICATE", str(authority))
        status, text = await shown()
        assert status == 1
        assert "a token is asked for here" in text
        monkeypatch.setenv("STREAMER_WEB__TOKEN_FILE", str(token))
        status, text = await shown()
        assert status == 0, text
        assert "share of hits" in text
    client._opener.cache_clear()

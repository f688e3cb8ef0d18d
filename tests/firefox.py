"""A tab of the Firefox of this system, with as much of Playwright's page as a visit needs.

Playwright's own Firefox is a patched one, and its way to a stock one asks for commands that the
extended support release lacks. Firefox speaks WebDriver BiDi itself, without a driver between.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import websocket

NAMES = ("firefox-esr", "firefox")
KEYS = {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015"}
EVENTS = ["log.entryAdded", "network.beforeRequestSent", "network.fetchError"]
FUNCTION = re.compile(r"(async\s+)?(\([^)]*\)|\w+)\s*=>")
PREFERENCES = {"ui.prefersReducedMotion": 1, "layout.css.prefers-color-scheme.content-override": 1}
EAGER = "() => document.querySelectorAll('img').forEach(i => { i.loading = 'eager'; })"
LONG = 120  # seconds until a wait is given up


def found() -> str | None:
    """Return where Firefox is, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Element:
    """An element of the page."""

    def __init__(self, page: Page, reference: str) -> None:
        self.page, self.reference = page, {"sharedId": reference}

    def evaluate(self, source: str) -> Any:
        return self.page.call(source, self.reference)

    def get_attribute(self, name: str) -> str | None:
        return self.evaluate(f"e => e.getAttribute({json.dumps(name)})")

    def focus(self) -> None:
        self.evaluate("e => e.focus()")


class Page:
    """One tab."""

    def __init__(self, path: str) -> None:
        self.profile = tempfile.TemporaryDirectory()
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items()]
        (Path(self.profile.name) / "user.js").write_text("\n".join(lines))
        command = [path, "--headless", "--no-remote", "--profile", self.profile.name]
        self.process = subprocess.Popen(
            [*command, "--remote-debugging-port", "0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stderr
        address = next(
            match[0]
            for line in self.process.stderr
            if (match := re.search(r"ws://127\.0\.0\.1:\d+", line))
        )
        self.socket = websocket.create_connection(
            f"{address}/session", timeout=LONG, suppress_origin=True
        )
        self.sent, self.handlers = 0, defaultdict[str, list[Callable[[Any], None]]](list)
        self.version = self.send("session.new", capabilities={})["capabilities"]["browserVersion"]
        self.send("session.subscribe", events=EVENTS)
        self.context = self.send("browsingContext.getTree")["contexts"][0]["context"]
        self.keyboard = SimpleNamespace(press=self.press)
        self.look = "light"

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait()
        self.profile.cleanup()

    def send(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its answer; what happens meanwhile goes to the handlers."""
        self.sent += 1
        self.socket.send(json.dumps({"id": self.sent, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message["type"] == "event":
                self.happened(message["method"], message["params"])
            elif message["id"] == self.sent:
                if message["type"] == "error":
                    raise RuntimeError(f"{method}: {message['message']}")
                return message["result"]

    def happened(self, event: str, params: Any) -> None:
        if event == "log.entryAdded":
            told = SimpleNamespace(type=params["level"], text=params["text"])
            kind, seen = "console", told
        else:
            kind = "request" if event == "network.beforeRequestSent" else "requestfailed"
            seen = SimpleNamespace(url=params["request"]["url"])
        for handler in self.handlers[kind]:
            handler(seen)

    def on(self, event: str, handler: Callable[[Any], None]) -> None:
        self.handlers[event].append(handler)

    def remove_listener(self, event: str, handler: Callable[[Any], None]) -> None:
        self.handlers[event].remove(handler)

    def goto(self, url: str, wait_until: str = "load") -> None:
        self.send("browsingContext.navigate", context=self.context, url=url, wait="complete")
        self.emulate_media(color_scheme=self.look)
        self.evaluate(EAGER)  # a picture still on its way when the page is left counts as failed
        self.wait_for_function("() => [...document.images].every(i => i.complete)")

    def set_viewport_size(self, size: dict[str, int]) -> None:
        self.send("browsingContext.setViewport", context=self.context, viewport=size)

    def emulate_media(self, *, color_scheme: str, reduced_motion: str = "reduce") -> None:
        """Choose the look as the page's own button does; motion is reduced from the start."""
        self.look = color_scheme
        self.evaluate(f"document.documentElement.dataset.theme = '{color_scheme}'")

    def run(self, method: str, **params: Any) -> Any:
        target = {"context": self.context}
        answer = self.send(method, target=target, awaitPromise=True, **params)
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"]

    def call(self, source: str, *arguments: Any) -> Any:
        """Call a function of the page; elements go there by reference, all else as JSON."""
        given = [
            each if isinstance(each, dict) and "sharedId" in each
            else {"type": "string", "value": json.dumps(each)}
            for each in arguments
        ]  # fmt: skip
        declared = (
            "async (...given) => JSON.stringify(await (" + source + ")(...given.map(each => "
            "typeof each === 'string' ? JSON.parse(each) : each)) ?? null)"
        )
        found = self.run("script.callFunction", functionDeclaration=declared, arguments=given)
        return json.loads(found["value"])

    def evaluate(self, source: str, arg: Any = None) -> Any:
        if FUNCTION.match(source.strip()):
            return self.call(source, arg)
        return self.run("script.evaluate", expression=source).get("value")

    def query_selector_all(self, selector: str) -> list[Element]:
        function = f"() => [...document.querySelectorAll({json.dumps(selector)})]"
        nodes = self.run("script.callFunction", functionDeclaration=function)["value"]
        return [Element(self, node["sharedId"]) for node in nodes]

    def query_selector(self, selector: str) -> Element | None:
        return next(iter(self.query_selector_all(selector)), None)

    def wait_for_function(self, source: str, arg: Any = None) -> None:
        until = time.monotonic() + LONG
        while not self.evaluate(source, arg):
            if time.monotonic() > until:
                raise TimeoutError(source)
            time.sleep(0.05)

    def wait_for_timeout(self, milliseconds: float) -> None:
        time.sleep(milliseconds / 1000)

    def press(self, key: str) -> None:
        value = KEYS.get(key, key)
        pressed = [{"type": each, "value": value} for each in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keys", "actions": pressed}]
        self.send("input.performActions", context=self.context, actions=actions)

"""Headless Chromium by the DevTools protocol: a WebSocket of the standard library's sockets, since it needs no more."""
import base64
import json
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request


class Socket:
    """The client's side of a WebSocket, text messages only. source: RFC 6455"""

    def __init__(self, url):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.socket = socket.create_connection((name, int(port)), timeout=120)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self.socket.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.socket.recv(1)

    def send(self, text):
        data, mask = text.encode(), secrets.token_bytes(4)
        n = len(data)
        size = bytes([0x80 | n]) if n < 126 else bytes([0x80 | 126]) + struct.pack(">H", n) if n < 65536 else bytes([0x80 | 127]) + struct.pack(">Q", n)
        self.socket.sendall(b"\x81" + size + mask + bytes(c ^ mask[i & 3] for i, c in enumerate(data)))

    def _read(self, n):
        out = bytearray()
        while len(out) < n:
            part = self.socket.recv(min(1 << 20, n - len(out)))
            if not part:
                raise EOFError("the browser has closed the connection")
            out += part
        return bytes(out)

    def receive(self):
        out = b""
        while True:
            first, second = self._read(2)
            n = second & 127
            if n >= 126:
                n = struct.unpack(">H" if n == 126 else ">Q", self._read(2 if n == 126 else 8))[0]
            out += self._read(n)
            if first & 0x80:
                return out.decode()


class Browser:
    """One page of a browser of its own. Its events are in |events|, in order."""

    def __init__(self, width=1400, height=900):
        self.folder = tempfile.mkdtemp(prefix="kiln-chromium-")
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        self.process = subprocess.Popen([program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
                                         f"--user-data-dir={self.folder}", f"--window-size={width},{height}", "about:blank"],
                                        stderr=subprocess.PIPE, text=True)
        address = next(line.split("//")[1].split("/")[0] for line in self.process.stderr if "DevTools listening on" in line)
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()
        pages = json.load(urllib.request.urlopen(f"http://{address}/json"))
        self.socket = Socket(next(p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page"))
        self.number, self.events = 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def run(self, script):
        r = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{script}: {r['exceptionDetails']['exception'].get('description', r)}")
        return r["result"].get("value")

    def open(self, path, theme="light"):
        self.events.clear()
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && typeof begin === 'function'")

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def press(self, key):
        text = {"text": key} if len(key) == 1 else {}
        code = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self):
        """What the console has: exceptions, errors and warnings."""
        return [json.dumps(e["params"])[:400] for e in self.events
                if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded") or
                (e.get("method") == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "warning", "assert"))]

    def requests(self):
        """What the page has asked for beside itself."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent" and e["params"].get("type") != "Document"]

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

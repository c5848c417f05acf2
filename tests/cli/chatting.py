"""A model's side of a chat: what the small server answers, and how the command reaches it."""

from __future__ import annotations

from tests.cli.fake_openai import Answer, Body, FakeOpenAI, Say, last

WRITE = ("write_file", {"path": "notes/todo.txt", "content": "milk\nbread\n"})
ASK = ("ask_user", {"question": "Which city?"})


def answer(body: Body) -> Answer:
    """What the server says to the last message."""
    message = last(body)
    if message["role"] == "tool":
        return Say(f"The tool said: {message['content']}")
    text = str(message["content"])
    if "write" in text:
        return Say("I write it.", (WRITE,))
    if "ask" in text:
        return Say("", (ASK,))
    if "read" in text:
        return Say("", (("list_files", {}), ("read_file", {"path": "../secret"}), ("read_file", {"path": "a.txt"})))
    return Say(f"You said {text}")


def options(server: FakeOpenAI, *more: str, session: str = "s") -> list[str]:
    """The arguments of a chat with a server."""
    return ["chat", "--base-url", server.url, "--model", "fake", "--session", session, *more]


def asked(server: FakeOpenAI, request: int = -1) -> list[str]:
    """What people said in a request, by default the last one."""
    return [str(message["content"]) for message in server.requests[request]["messages"] if message["role"] == "user"]

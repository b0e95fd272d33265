"""The process of tests: runs them against a program in another process, and reports how they ended.

    python -I -c TEXT-OF-THIS-FILE JOB PROGRAM SUPERVISOR      three file descriptors

Tests call the program with plain data and get plain data, or a ``Kept``, which can only be called or asked for an attribute.
Whatever else the program answers, and whatever else the tests try with a ``Kept``, ends the tests: it isn't an exception, which
tests might catch. The report goes to a pipe that the supervisor opens when the program has ended.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import socket
import sys
import types
from typing import Any, NoReturn

EXCEPTIONS = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
}
ENDS_A_LOOP = (StopIteration, StopAsyncIteration)
"""A loop over calls would take them for its end."""
PLAIN = (int, float, complex, str, bytes, range, list, tuple, dict, set)
PLAIN_HAS = {name for kind in PLAIN for name in dir(kind) if name[0] != "_"}
ALLOWED = {
    *("__class__", "__doc__", "__init__", "__new__", "__getattribute__"),
    *("__init_subclass__", "__subclasshook__", "__class_getitem__"),
}
ALSO_REFUSED = {"__next__", "__enter__", "__exit__", "__await__", "__instancecheck__", "__subclasscheck__"}
NO_ANSWER = "the program answered what is no answer"
FOR_EFFECTS = "for effects"
"""A name that no test can have."""


class ForEffects(ast.NodeTransformer):
    """Marks calls whose result is thrown away: they are made for what they change."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        """Mark a call."""
        if isinstance(node.value, ast.Call):
            mark = ast.Name(FOR_EFFECTS, ast.Load())
            node.value.func = ast.Call(mark, [node.value.func], [])
        return node


def end(how: str, error: str = "", status: int = 0) -> NoReturn:
    """End this process; the supervisor opens the pipe for the report when the program has ended."""
    os.close(side.program)
    supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=side.supervisor)
    supervisor.send(b"\0")
    _, (report, *_), _, _ = socket.recv_fds(supervisor, 1, 1)
    os.write(report, json.dumps({"how": how, "error": error[:300], "status": status}).encode())
    os._exit(0)


class Side:
    """This end of the socket to the program."""

    def __init__(self, wire: Any, program: int, supervisor: int) -> None:
        self.wire, self.program, self.supervisor = wire, program, supervisor
        self.asked = 0

    def ask(self, what: str, *rest: Any) -> list[Any]:
        """Return the program's answer."""
        self.asked += 1
        try:
            self.wire.send(self.program, [self.asked, what, *rest])
            number, answer = self.wire.receive(self.program)
            if number != self.asked or not isinstance(answer, list):
                raise ValueError("an answer to something else")
            return answer
        except self.wire.NotPlain as error:
            end("raised", f"the tests pass the program {error}; only plain data can be passed")
        except self.wire.Closed:
            end("killed", "the program exited before its tests finished")
        except Exception:  # noqa: BLE001 - an answer may be anything
            end("killed", NO_ANSWER)

    def value(self, answer: list[Any], kept: tuple[str, int, bool, bool], given: list[Any] | None = None) -> Any:
        """What an answer says; raises the exception that it is. ``kept`` is for a ``Kept``, ``given`` what a call may change."""
        try:
            kind, *content = answer
            if kind == "plain":
                self.change(given, *content[1:])
                return self.wire.unpack(content[0])
            if kind == "object":
                self.change(given, *content[2:])
                return Kept(int(content[0]), str(content[1])[:100], *kept)
            if kind == "exited":
                end("exited", status=int(content[0]))
            raised = self.exception(*content) if kind == "raised" else None
        except Exception:  # noqa: BLE001 - an answer may be anything
            raised = None
        if raised is None:
            end("killed", NO_ANSWER)
        raise raised

    def change(self, given: list[Any] | None, steps: Any = ()) -> None:
        """Give arguments the content that their copies have after a call for its effects."""
        for place, content in self.wire.unpack(steps).items() if steps else ():
            target = (given or [])[place]
            base = next(each for each in (list, dict, set) if isinstance(target, each) and type(content) is each)
            base.clear(target)
            base.extend(target, content) if base is list else base.update(target, content)

    def exception(self, name: str, steps: Any, text: str) -> Exception:
        """An exception of the class that the program and the tests share."""
        if name not in EXCEPTIONS:
            end("raised", str(text))  # such as KeyboardInterrupt
        if issubclass(EXCEPTIONS[name], ENDS_A_LOOP):
            return RuntimeError(f"the program raised {name}")
        args = self.wire.unpack(steps)
        try:
            return EXCEPTIONS[name](*args)
        except Exception:  # noqa: BLE001 - a class may want other arguments
            return RuntimeError(str(text)[:300])


class Kept:
    """Something of the program that isn't plain data and stays there: this side has its number.

    Args:
        number: its number there.
        kind: the name of its type, as the program says.
        name: what the tests call it.
        depth: 0 for a name of the program and for an instance of its class, 1 for an attribute of these, and so on; what is
            deeper than 1 can't be called. -1 for what a function or method returned: it has no attributes. The tests want plain
            data from there, and a program could answer "yes" to ``endswith`` or ``all`` in its place.
        is_class: whether calling it makes an instance: its name starts with a capital letter.
        is_made: whether it is a class or an instance; only these have attributes of a name that plain data has too.
    """

    __slots__ = ("__facts",)

    def __init__(self, number: int, kind: str, name: str, depth: int, is_class: bool, is_made: bool) -> None:
        object.__setattr__(self, "_Kept__facts", (number, kind, name, depth, is_class, is_made))

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        return _call(self, args, named)

    def __getattr__(self, attribute: str) -> Any:
        number, _, name, depth, _, is_made = _facts(self)
        if attribute == "__name__":
            return name
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if depth < 0 or (attribute in PLAIN_HAS and not is_made):
            _refuse(self)
        return side.value(side.ask("get", number, attribute), of_name(f"{name}.{attribute}", depth + 1))


def of_name(name: str, depth: int = 0) -> tuple[str, int, bool, bool]:
    """What a ``Kept`` of a name is."""
    is_class = name.rpartition(".")[2][:1].isupper()
    return name, 0 if is_class else depth, is_class, is_class


def _facts(kept: Kept) -> tuple[int, str, str, int, bool, bool]:
    facts: tuple[int, str, str, int, bool, bool] = object.__getattribute__(kept, "_Kept__facts")
    return facts


def _number(value: Any) -> int | None:
    return _facts(value)[0] if type(value) is Kept else None


def _call(kept: Kept, args: tuple[Any, ...], named: dict[str, Any], *, for_effects: bool = False) -> Any:
    number, _, name, depth, is_class, _ = _facts(kept)
    if depth > 1:
        _refuse(kept)
    try:
        steps = side.wire.pack([list(args), named], _number)
    except (side.wire.NotPlain, RecursionError) as error:
        end("raised", f"the tests pass {name} {error}; only plain data can be passed")
    given = [*args, *named.values()] if for_effects else None
    made = (f"{name}()", 0 if is_class else -1, False, is_class)
    return side.value(side.ask("call", number, steps, for_effects), made, given)


def for_effects(target: Any) -> Any:
    """Return what makes a call for its effects."""
    if type(target) is not Kept:
        return target
    return lambda *args, **named: _call(target, args, named, for_effects=True)


def _refuse(kept: Kept, *_: Any) -> NoReturn:
    kind, name = _facts(kept)[1:3]
    end("raised", f"{name} is {kind}, which isn't plain data; tests that run apart from a program use plain data only")


for _special in {special for plain in PLAIN for special in dir(plain) if special[:2] == "__"} | ALSO_REFUSED:
    if _special not in ALLOWED:
        setattr(Kept, _special, _refuse)


def main() -> None:
    """Run the tests of the job that a descriptor holds, with the program at the other end of a socket."""
    global side
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = json.loads(file.read())
    wire: Any = types.ModuleType("wire")
    exec(compile(job["wire"], "wire.py", "exec"), wire.__dict__)
    side = Side(wire, int(sys.argv[2]), int(sys.argv[3]))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.set_int_max_str_digits(0)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        tests = compile(ast.fix_missing_locations(ForEffects().visit(ast.parse(job["tests"]))), "tests.py", "exec")
        kind, *found = side.ask("run", job["names"], job["tested"])
        if kind != "ran" or len(found) != len(job["names"]):
            side.value([kind, *found], of_name("the program"))
            end("killed", NO_ANSWER)
        exec(compile(job["prelude"], "tests.py", "exec"), module.__dict__)
        for name, answer in zip(job["names"], found, strict=True):
            if answer is None and name in job["tested"]:
                end("raised", f"NameError: the program does not define {name}")
            if answer is not None and (name in job["tested"] or name not in module.__dict__):
                module.__dict__[name] = side.value(answer, of_name(name))
        module.__dict__[FOR_EFFECTS] = for_effects
        exec(tests, module.__dict__)
    except SystemExit as error:
        end("exited", status=0 if error.code is None else error.code if isinstance(error.code, int) else 1)
    except BaseException as error:  # noqa: BLE001 - tests may raise anything
        end("raised", f"{type(error).__name__}: {error}")
    end("ended")


side: Side
if __name__ == "__main__":
    main()

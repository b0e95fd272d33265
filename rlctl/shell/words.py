"""The words of a shell script, as bash takes them: quotes, ``$X``, ``${X:-default}``, ``"${A[@]}"``, ``$(( ))``, ``$( )``.

What is not known here, as ``${X@Q}``, makes a text whose value is not known, with the reason and the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.shell.arithmetic import assigned, evaluate
from rlctl.shell.patterns import cut, escaped, is_costly
from rlctl.shell.state import BLANKS, State
from rlctl.shell.text import (
    Piece,
    Text,
    changed,
    from_environment,
    from_secret,
    hidden,
    joined,
    literal,
    names,
    open_end,
    plain,
    problem,
    quoted,
    unknown,
    unquoted,
    unset,
    words,
)

_NAME = re.compile(r"[A-Za-z_]\w*")
_SPECIAL = re.compile(r"[0-9@*#?$!-]")
_INSIDE = re.compile(
    r"(?P<sign>[#!])?(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)", re.DOTALL
)
_OPERATOR = re.compile(r":?[-=+?]|##?|%%?|/[/#%]?|\^\^?|,,?|:")
_FILES = re.compile(r"[*?]|\[[^\]]+\]")
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b"}
_CODE = re.compile(r"x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}")
_BYTES = re.compile(r"(?:\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,3}))+")
_OTHER_HOME = re.compile(r"~[+-](?:/|\Z)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*=")
_MAX_DEPTH = 50
_MAX_WORK = 1 << 22


class _Break:
    """The border between two items of an array."""


_BREAK = _Break()
_Part = Piece | _Break


class Words:
    """Expands the words of a script in a state."""

    def __init__(self, state: State, substitute: Callable[[str, Location], Text]) -> None:
        self.state = state
        self.substitute = substitute
        self._depth = 0
        self._protects = False
        """Whether quoted parts of the word that is scanned next are escaped, as those of a pattern."""
        self.vanished: dict[str, Location] = {}
        """Unset variables where a word was nothing else, so that there is no word."""
        self._bare: list[str] | None = None
        """Where the text of the word that is scanned next goes that is neither in quotes nor expanded."""

    def fields(self, source: str, at: Location) -> list[Text]:
        """The words that one word of a command line becomes."""
        bare = self._bare = []
        parts = self._parts(source, at, tilde=_IDENTIFIER.match(source) is not None)
        found: list[Text] = []
        current: list[Piece] = []
        for part in [*parts, _BREAK]:
            if isinstance(part, _Break):
                split = self._split(tuple(current), at)
                self.vanished |= dict.fromkeys(unset(tuple(current)), at) if not split else {}
                found += split
                current = []
            else:
                current.append(part)
        whole = "".join(part.text if isinstance(part, Piece) else " " for part in parts)
        if _BRACES.search(whole) and _BRACES.search(_without_quotes(source)):
            why = said("the shell expands the braces in {word!r}; put the word in quotes", word=source[:40])
            return [unquoted(unknown(why, at))]
        bare += [piece.text for word in found for piece in word if not piece.quoted]
        if self.state.expands_files and _FILES.search("".join(bare).partition("=")[0]):
            why = said(
                "the shell replaces {word!r} with the files that match it; put the word in quotes", word=source[:40]
            )
            return [unquoted(unknown(why, at))]
        return found

    def _split(self, text: Text, at: Location) -> list[Text]:
        """The words of a text; where the script has set IFS, only those of which it splits none."""
        separators = self.state.text("IFS", at)
        if plain(separators) == BLANKS:
            return words(text)
        if (piece := hidden(separators)) is not None:
            return [(piece,)]
        odd = {*BLANKS, *plain(separators)}
        if any(not piece.quoted and odd & set(piece.text) for piece in text):
            return [unquoted(unknown("the shell splits it into words by IFS, which rlctl does not evaluate", at))]
        return words(text)

    def text(self, source: str, at: Location, *, tilde: bool = True) -> Text:
        """A word where the shell splits nothing, as the value of an assignment."""
        parts = self._parts(source, at, tilde=tilde)
        texts = literal(" ", at)
        return quoted(tuple(piece for part in parts for piece in (texts if isinstance(part, _Break) else (part,))))

    def pattern(self, source: str, at: Location) -> Text:
        """A word as a pattern or a regular expression: what is in quotes is escaped, so that it stands for itself."""
        self._protects = True
        return self.text(source, at)

    def here_document(self, source: str, at: Location) -> Text:
        """The text of a here-document, in which quotes are characters like any other."""
        kept = re.sub(r'\\([\\"])', lambda match: match[0] if match[1] == "\\" else '\\\\"', source)
        parts = self._parts(kept, at, tilde=False, inside_quotes=True)
        return quoted(tuple(part for part in parts if isinstance(part, Piece)))

    # Scanning

    def _parts(
        self, source: str, at: Location, *, tilde: bool, inside_quotes: bool = False, loose: bool = False
    ) -> list[_Part]:
        """The parts of a word; with ``loose``, text outside of quotes is split too, as that of a default is."""
        self._depth += 1
        try:
            if self._depth > _MAX_DEPTH:
                raise DocumentError("expansions are nested too deep", at=at)
            return self._scan(source, at, tilde=tilde, in_double=inside_quotes, loose=loose)
        finally:
            self._depth -= 1

    def _scan(self, source: str, at: Location, *, tilde: bool, in_double: bool, loose: bool) -> list[_Part]:
        parts: list[_Part] = []
        protects, self._protects = self._protects, False
        bare, self._bare = self._bare, None
        position = 0
        start_of_word = True
        while position < len(source):
            here = _further(at, source, position)
            character = source[position]
            before, is_quote = len(parts), character in "\\'\"" or source.startswith("$'", position)
            if character == "\\":
                position = self._escape(source, position, here, parts, in_double=in_double)
            elif character == "'" and not in_double:
                end = source.find("'", position + 1)
                if end < 0:
                    raise DocumentError("a quote is opened and never closed", at=here)
                parts.append(Piece(source[position + 1 : end], here))
                position = end + 1
            elif character == '"' and not in_double:
                end = _closing_quote(source, position + 1, here)
                inside = self._parts(source[position + 1 : end], here, tilde=False, inside_quotes=True)
                parts += inside or [Piece("", here)] * (not _only_items(source[position + 1 : end]))
                position = end + 1
            elif source.startswith("$'", position) and not in_double:
                position = _ansi(source, position, here, parts)
            elif character == "$":
                position = self._dollar(source, position, here, parts, in_double=in_double)
            elif character == "`":
                end = _closing_backtick(source, position + 1, here)
                inner = _in_backticks(source[position + 1 : end], in_double=in_double)
                parts += _shown(self.substitute(inner, here), in_double=in_double)
                position = end + 1
            elif (
                character == "~"
                and not in_double
                and (start_of_word or (tilde and source[position - 1] in "=:"))
                and source[position + 1 : position + 2] in ("", "/", ":")
            ):
                parts += quoted(self._home(here))
                position += 1
            elif start_of_word and not in_double and _OTHER_HOME.match(source, position):
                parts += unknown(said("rlctl does not evaluate {source!r}", source=source[:2]), here)
                position += 2
            else:
                end = position + 1
                while end < len(source) and source[end] not in "\\'\"$`~":
                    end += 1
                parts.append(Piece(source[position:end], here, quoted=not loose))
                if bare is not None:
                    bare.append(source[position:end])
                position = end
            start_of_word = False
            if protects and is_quote:
                parts[before:] = [_protected(part) for part in parts[before:]]
        return parts

    def _escape(self, source: str, position: int, at: Location, parts: list[_Part], *, in_double: bool) -> int:
        following = source[position + 1 : position + 2]
        if following == "\n":
            return position + 2
        if in_double and following not in ("$", "`", '"', "\\"):
            parts.append(Piece("\\", at))
            return position + 1
        parts.append(Piece(following or "\\", at))
        return position + 2

    def _home(self, at: Location) -> Text:
        value = self.state.look_up("HOME", at)
        return unknown("'~' is the home folder, but HOME is not set", at) if not value else self.state.text("HOME", at)

    def _dollar(self, source: str, position: int, at: Location, parts: list[_Part], *, in_double: bool) -> int:
        if source.startswith("$((", position):
            end = _closing(source, position + 1, at)
            if source[end - 1] == ")":
                parts += _shown(self.arithmetic(source[position + 3 : end - 1], at), in_double=in_double)
                return end + 1
        if source.startswith("$(", position):
            end = _closing(source, position + 1, at)
            parts += _shown(self.substitute(source[position + 2 : end], at), in_double=in_double)
            return end + 1
        if source.startswith("${", position):
            end = _closing(source, position + 1, at)
            parts += self._expansion(source[position + 2 : end], at, in_double=in_double)
            return end + 1
        if source.startswith("$[", position) and (end := source.find("]", position)) > 0:
            parts += _shown(self.arithmetic(source[position + 2 : end], at), in_double=in_double)
            return end + 1
        if source.startswith('$"', position) and not in_double:
            return position + 1
        match = _NAME.match(source, position + 1) or _SPECIAL.match(source, position + 1)
        if match is None:
            parts.append(Piece("$", at))
            return position + 1
        parts += self._variable(match[0], at, in_double=in_double)
        return match.end()

    # Parameters

    def _variable(self, name: str, at: Location, *, in_double: bool) -> list[_Part]:
        if name in ("@", "*"):
            self.state.wants_arguments = True
            return self._all(self.state.arguments, at, in_double=in_double, join=name == "*")
        return _shown(self._value(name, at), in_double=in_double)

    def _value(self, name: str, at: Location) -> Text:
        self.state.wants_arguments = self.state.wants_arguments or name == "#" or (name.isdecimal() and name != "0")
        if name == "#":
            return self._count(self.state.arguments, at)
        if name == "0":
            return literal(self.state.zero or self.state.script, at)
        if name.isdecimal():
            found = self._argument(name)
            if found is None and (self.state.strict or (self.state.surveys and not self.state.calls)):
                return self.state.lacks(
                    name, at, "", said("the script needs an argument ${name}, which is not given", name=name)
                )
            if found is None and not self.state.calls:
                return self.state.not_set(name, at)
            return found or ()
        if name == "?" and self.state.status:
            return literal("0", at)
        if not _NAME.fullmatch(name):
            return unknown(said("what ${name} is can only be known by running the script", name=name), at)
        if name == "BASH_SOURCE":
            return literal(self.state.source or self.state.script, at)
        return self.state.text(name, at)

    def _count(self, items: list[Text], at: Location) -> Text:
        end = open_end(items)
        return literal(str(len(items)), at) if end is None else quoted(end[1])

    def _argument(self, name: str) -> Text | None:
        number, end = natural(name), open_end(self.state.arguments)
        if end is not None and (number is None or number > end[0]):
            return quoted(end[1])
        if number is None or not 0 < number <= len(self.state.arguments):
            return None
        return self.state.arguments[number - 1]

    def _all(self, items: list[Text], at: Location, *, in_double: bool, join: bool) -> list[_Part]:
        if in_double and join:
            if len(items) > 1 and plain(self.state.text("IFS", at))[:1] != " ":
                return [*unknown("the shell joins the items by IFS, which rlctl does not evaluate", at)]
            return list(joined(items, " ", at))
        found: list[_Part] = []
        for index, item in enumerate(items):
            if index:
                found.append(_BREAK)
            stays_one_word = in_double and open_end([item]) is None
            found += (quoted(item) or (Piece("", at),)) if stays_one_word else unquoted(item)
        return found

    def _expansion(self, inside: str, at: Location, *, in_double: bool) -> list[_Part]:
        match = _INSIDE.fullmatch(inside)
        if match is None:
            return [*unknown(said("rlctl does not evaluate the expansion ${{{inside}}}", inside=inside[:40]), at)]
        sign, name, index, rest = match["sign"], match["name"], match["index"], match["rest"]
        if sign == "#" and not rest:
            return [*self._length(name, index, at)]
        if sign == "!":
            return self._indirect(name, index, rest, at, in_double=in_double)
        if sign:
            return [*unknown(said("rlctl does not evaluate the expansion ${{{inside}}}", inside=inside[:40]), at)]
        if name in ("@", "*") or index in ("@", "*"):
            self.state.wants_arguments = self.state.wants_arguments or name in ("@", "*")
            items = self.state.arguments if name in ("@", "*") else self.state.items(name, at)
            return self._items(items, rest, at, in_double=in_double, join=(index or name) == "*")
        if rest:
            return self._operated(name, index, rest, at, in_double=in_double)
        if index is not None:
            return _shown(self._item(name, index, at), in_double=in_double)
        return _shown(self._value(name, at), in_double=in_double)

    def _items(self, items: list[Text], rest: str, at: Location, *, in_double: bool, join: bool) -> list[_Part]:
        operator = _OPERATOR.match(rest)
        if rest and operator is None:
            return [*unknown(said("rlctl does not evaluate the operation {rest!r} on an array", rest=rest[:20]), at)]
        if operator and (end := open_end(items)) is not None:
            return [*end[1]]
        if operator and operator[0] in (":-", "-", ":+", "+"):
            if bool(items) is (operator[0][-1] == "+"):
                return self._parts_of_default(rest[operator.end() :], at, in_double=in_double)
            items = items if operator[0][-1] == "-" else []
        elif operator and operator[0] == ":":
            first, _, count = rest[1:].partition(":")
            begin, size = self._number(first, at), self._number(count, at) if count else None
            if begin is None or (count and (size is None or size < 0)):
                return [*unknown(said("rlctl cannot tell which part of the array {rest!r} is", rest=rest[:20]), at)]
            if items is self.state.arguments:
                items = [literal(self.state.zero or self.state.script, at), *items]
            begin = begin if begin >= 0 else len(items) + begin
            items = items[begin : None if size is None else begin + size] if begin >= 0 else []
        elif operator:
            items = [self._edited(item, operator[0], rest[operator.end() :], at) for item in items]
        return self._all(items, at, in_double=in_double, join=join)

    def _item(self, name: str, index: str, at: Location) -> Text:
        number = self._number(index, at)
        if name == "BASH_SOURCE" and number == 0:
            return literal(self.state.source or self.state.script, at)
        items = self.state.items(name, at)
        if number is None:
            return unknown(said("rlctl cannot tell which item of {name} '{index}' is", name=name, index=index), at)
        if (end := open_end(items)) is not None and not 0 <= number < end[0]:
            return quoted(end[1])
        return items[number] if -len(items) <= number < len(items) else ()

    def _indirect(self, name: str, index: str | None, rest: str, at: Location, *, in_double: bool) -> list[_Part]:
        items = self.state.items(name, at) if index in ("@", "*") else []
        if index in ("@", "*") and not rest and not any(map(problem, items)):
            places = [literal(str(place), at) for place in range(len(items))]
            return self._all(places, at, in_double=in_double, join=index == "*")
        if index is not None or rest:
            return [
                *unknown(
                    said("rlctl does not evaluate the expansion ${{!{name}{rest}}}", name=name, rest=rest[:20]), at
                )
            ]
        pointed = self._value(name, at)
        if (piece := hidden(pointed)) is not None:
            return [piece]
        if not _NAME.fullmatch(plain(pointed)):
            return [*unknown(said("${{!{name}}} names no variable", name=name), at)]
        return _shown(self.state.text(plain(pointed), at), in_double=in_double)

    def _length(self, name: str, index: str | None, at: Location) -> Text:
        if index in ("@", "*"):
            return self._count(self.state.items(name, at), at)
        if name in ("@", "*"):
            return self._count(self.state.arguments, at)
        value = self._item(name, index, at) if index is not None else self._value(name, at)
        return changed(value, str(len(plain(value))), at)

    # Operations

    def _operated(self, name: str, index: str | None, rest: str, at: Location, *, in_double: bool) -> list[_Part]:
        operator = _OPERATOR.match(rest)
        if operator is None:
            return [
                *unknown(said("rlctl does not evaluate the expansion ${{{name}{rest}}}", name=name, rest=rest[:20]), at)
            ]
        sign, word = operator[0], rest[operator.end() :]
        if sign[-1] in "-=+?" and sign != ":":
            found = self._with_default(name, index, sign, word, at, in_double=in_double)
            return ([*quoted(found)] or [*EMPTY]) if in_double else [*found]
        value = self._item(name, index, at) if index is not None else self._value(name, at)
        return _shown(self._edited(value, sign, word, at), in_double=in_double)

    def _with_default(
        self, name: str, index: str | None, sign: str, word: str, at: Location, *, in_double: bool
    ) -> Text:
        found = self._found(name, index, at)
        is_there = found is not None and (bool(plain(found)) or problem(found) is not None or len(sign) == 1)
        if sign[-1] == "+":
            bad = problem(found or ())
            if bad is not None and (len(sign) == 2 or index is not None):  # it may be empty, or no item
                return (bad,)
            return self._word(word, at, in_double=in_double) if is_there else ()
        in_environment = self._is_from_environment(name) and index is None
        if is_there and found is not None and not in_environment:
            return unquoted(found)
        if sign[-1] == "?":
            if is_there and found is not None:
                return unquoted(found)
            told = plain(self._word(word, at, in_double=in_double)) or "it is not set"
            return self.state.lacks(name, at, told, said("the script needs ${name}: {why}", name=name, why=told))
        default = self._word(word, at, in_double=in_double)
        value = default
        if is_there and found is not None:
            below = default if problem(default) is None else None
            is_hidden = any(piece.secret for piece in found)
            value = from_secret(name, below, at) if is_hidden else from_environment(name, plain(found), below, at)
            value = unquoted(value)
        elif in_environment and problem(default) is None and not _holds_quoted_blanks(default):
            value = tuple(
                replace(piece, unset=unset(default)) for piece in from_environment(name, plain(default), default, at)
            )
            if value[0].secret:
                self.state.secrets[name] = plain(default)
            value = value if default and all(piece.quoted for piece in default) else unquoted(value)
        elif found or in_environment:
            depends = names(found) if found else frozenset({name})
            value = tuple(replace(piece, names=piece.names | depends, symbol="") for piece in default)
        if sign[-1] == "=":
            self.state.assign(name, value)
        return value

    def _is_from_environment(self, name: str) -> bool:
        known = name in self.state.variables or name in self.state.given
        return not known and _NAME.fullmatch(name) is not None

    def _found(self, name: str, index: str | None, at: Location) -> Text | None:
        if name.isdecimal():
            self.state.wants_arguments = True
            return self._argument(name)
        if index is not None:
            items = self.state.items(name, at)
            number = self._number(index, at)
            if number is not None and (end := open_end(items)) is not None and not 0 <= number < end[0]:
                return quoted(end[1])
            return items[number] if number is not None and -len(items) <= number < len(items) else None
        value = self.state.look_up(name, at)
        return (value[0] if value else None) if isinstance(value, list) else value

    def _word(self, word: str, at: Location, *, in_double: bool) -> Text:
        parts = self._parts_of_default(word, at, in_double=in_double)
        blank = replace(literal(" ", at)[0], quoted=in_double)
        return tuple(part if isinstance(part, Piece) else blank for part in parts)

    def _parts_of_default(self, word: str, at: Location, *, in_double: bool) -> list[_Part]:
        """The parts of what ``${x:-...}`` gives: in quotes, quotes of its own begin text that is not in them."""
        in_text = in_double and '"' not in word
        parts = self._parts(word, at, tilde=not in_double, inside_quotes=in_text, loose=not in_double)
        return [replace(part, quoted=True) if in_double and isinstance(part, Piece) else part for part in parts]

    def _edited(self, value: Text, sign: str, word: str, at: Location) -> Text:
        if (piece := hidden(value)) is not None:
            return (piece,)
        text = plain(value)
        if sign == ":":
            first, _, count = word.partition(":")
            begin, size = self._number(first, at), self._number(count, at) if count else None
            if begin is None or (count and size is None):
                return unknown(said("rlctl cannot tell which part of the text ':{word}' is", word=word), at)
            begin = max(len(text) + begin, 0) if begin < 0 else begin
            end = None if size is None else size if size < 0 else begin + size
            return changed(value, text[begin:end], at)
        if sign in ("^", "^^", ",", ",,"):
            if word:
                return unknown(said("rlctl does not evaluate the pattern of '{sign}{word}'", sign=sign, word=word), at)
            change = str.upper if sign[0] == "^" else str.lower
            return changed(value, change(text) if len(sign) == 2 else change(text[:1]) + text[1:], at)
        pattern, replacement = (
            _split_slash(word, at, int(sign == "//" and word[:1] == "/")) if sign[0] == "/" else (word, "")
        )
        glob = self.pattern(pattern, at)
        by = self.text(replacement, at)
        if _refers_to_match(replacement, plain(by)):
            return unknown("'&' in a replacement is what matched from bash 5.2 on, and a character before", at)
        for used in (glob, by):
            if (piece := hidden(used)) is not None:
                return (piece,)
        if (len(text) + 1) * (len(plain(by)) + 1) > _MAX_WORK or is_costly(text, plain(glob)):
            return unknown("the text is too large for rlctl to evaluate this operation", at)
        return changed(value, cut(text, sign, plain(glob), plain(by)), at)

    def _number(self, text: str, at: Location) -> int | None:
        found = self.arithmetic(text, at)
        return int(plain(found)) if hidden(found) is None else None

    def arithmetic(self, source: str, at: Location) -> Text:
        """The value of an arithmetic expression."""
        depends: list[Text] = []
        bad: list[Piece] = []
        inner = self.text(source, at, tilde=False) if "$" in source or "`" in source else literal(source, at)
        if (piece := hidden(inner)) is not None:
            return (piece,)
        depends.append(inner)
        if sets := assigned(plain(inner)):
            bad_value = unknown(
                said("$(({source})) sets a variable inside an expression", source=source.strip()[:40]), at
            )
            for name in sets:
                self.state.assign(name, bad_value)
            return bad_value

        def variable(name: str) -> int:
            value = self.state.text(name, at)
            depends.append(value)
            if (piece := hidden(value)) is not None:
                bad.append(piece)
                return 1
            text = plain(value).strip()
            if re.fullmatch(r"-?\d+", text):
                return int(text)
            return evaluate(text, variable) if text and text != name else 0

        try:
            result = evaluate(plain(inner), variable) if plain(inner).strip() else 0
        except (ValueError, RecursionError) as error:
            return unknown(said("$(({source})): {error}", source=source.strip()[:40], error=error), at)
        if bad:
            return (bad[0],)
        used = tuple(piece for text in depends for piece in text)
        return (Piece(str(result), at, names=names(used), unset=unset(used)),)


EMPTY: Text = (Piece("", Location("")),)
"""A word of no characters, as quotes make it."""


def _holds_quoted_blanks(text: Text) -> bool:
    """Whether a text has a blank at which the shell does not split it."""
    return any(piece.quoted and re.search(r"\s", piece.text) for piece in text) and any(not p.quoted for p in text)


def _shown(text: Text, *, in_double: bool) -> list[_Part]:
    return ([*quoted(text)] or [*EMPTY]) if in_double else [*unquoted(text)]


def _further(at: Location, source: str, position: int) -> Location:
    lines = source.count("\n", 0, position)
    return Location(at.file, at.line + lines) if lines and at.line else at


def _only_items(source: str) -> bool:
    """Whether quotes hold nothing but an array's items, of which there may be none."""
    return re.fullmatch(r"\$(?:@|\{[@*][^}]*\}|\{\w+\[@\][^}]*\})", source) is not None


def _ansi(source: str, position: int, at: Location, parts: list[_Part]) -> int:
    text = ""
    position += 2
    while position < len(source) and source[position] != "'":
        if source[position] == "\\" and position + 1 < len(source):
            if (run := _BYTES.match(source, position)) is not None and (letters := _decoded(run[0])):
                text += letters
                position = run.end()
                continue
            position += 1
            if (code := _CODE.match(source, position)) is not None:
                if (character := _character(code[0])) is None:
                    parts.extend(unknown(said("rlctl does not evaluate '\\{code}'", code=code[0]), at))
                text += character or ""
                position = code.end()
                continue
            text += _ESCAPES.get(source[position], "\\" + source[position])
        else:
            text += source[position]
        position += 1
    parts.append(Piece(text, at))
    return position + 1


def _decoded(run: str) -> str:
    """The text of escaped bytes such as ``\\xe2\\x82\\xac``; empty if they are no UTF-8."""
    codes = [int(code[1:], 16) if code[0] == "x" else int(code, 8) for code in run.split("\\")[1:]]
    try:
        return bytes(codes).decode() if all(codes) else ""
    except ValueError:
        return ""


def _character(code: str) -> str | None:
    """The character of ``\\x41`` or a similar escape; None for a part of a character, or for none."""
    number = int(code.lstrip("xuU"), 16 if code[0] in "xuU" else 8)
    is_whole = 0 < number < 0x80 or (code[0] in "uU" and not 0xD800 <= number < 0xE000 and 0 < number < 0x110000)
    return chr(number) if is_whole else None


def _closing_quote(source: str, position: int, at: Location) -> int:
    """The position of the double quote that closes the one opened before ``position``."""
    while position < len(source):
        if source[position] == "\\":
            position += 2
        elif source[position] == '"':
            return position
        elif source.startswith(("$(", "${"), position):
            position = _closing(source, position + 1, at) + 1
        elif source[position] == "`":
            position = _closing_backtick(source, position + 1, at) + 1
        else:
            position += 1
    raise DocumentError("a quote is opened and never closed", at=at)


def _closing(source: str, position: int, at: Location) -> int:
    """The position of the bracket that closes the one at ``position``."""
    opened, closed = source[position], {"(": ")", "{": "}"}[source[position]]
    depth = 0
    while position < len(source):
        character = source[position]
        if character == "\\":
            position += 1
        elif character == "'":
            end = source.find("'", position + 1)
            position = end if end > 0 else position
        elif character == '"':
            position = _closing_quote(source, position + 1, at)
        elif character == "#" and opened == "(" and source[position - 1] in BLANKS:
            position = source.find("\n", position) if "\n" in source[position:] else position
        elif character == opened:
            depth += 1
        elif character == closed:
            depth -= 1
            if not depth:
                return position
        position += 1
    raise DocumentError(said("a '{opened}' is opened and never closed", opened=opened), at=at)


def _closing_backtick(source: str, position: int, at: Location) -> int:
    """The position of the backtick that closes the one opened before ``position``."""
    while position < len(source):
        if source[position] == "`":
            return position
        position += 1 + (source[position] == "\\")
    raise DocumentError("a '`' is opened and never closed", at=at)


def _in_backticks(source: str, *, in_double: bool) -> str:
    """The command in backticks: some backslashes only kept a character from ending it."""
    return re.sub(r"\\([$`\\\"])" if in_double else r"\\([$`\\])", r"\1", source)


def _protected(part: _Part) -> _Part:
    return replace(part, text=escaped(part.text), symbol="") if isinstance(part, Piece) else part


def end_of_part(source: str, position: int, at: Location) -> int:
    """The end of the quoted text or expansion that starts at a position; the position itself if none does."""
    if source[position] == "\\":
        return min(position + 2, len(source))
    if source.startswith("$'", position):
        end = re.compile(r"(?:\\.|[^'\\])*'", re.DOTALL).match(source, position + 2)
        return len(source) if end is None else end.end()
    if source[position] == "'":
        end_of_quote = source.find("'", position + 1)
        return len(source) if end_of_quote < 0 else end_of_quote + 1
    if source[position] == '"':
        return _closing_quote(source, position + 1, at) + 1
    if source[position] == "`":
        return _closing_backtick(source, position + 1, at) + 1
    if source.startswith(("$(", "${"), position):
        return _closing(source, position + 1, at) + 1
    return position


def _split_slash(word: str, at: Location, start: int) -> tuple[str, str]:
    """The pattern and the replacement of ``${x/pattern/replacement}``: the first slash outside of quotes parts them."""
    position = start
    while position < len(word) and word[position] != "/":
        end = end_of_part(word, position, at)
        position = end if end > position else position + 1
    return word[:position], word[position + 1 :]


def alternatives(source: str, at: Location) -> list[str]:
    """The patterns before the ``)`` of ``case``, which stand between signs ``|`` outside of quotes."""
    found, position, start = [], 0, 0
    source = source.strip().removeprefix("(")
    while position < len(source):
        end = end_of_part(source, position, at)
        if source[position] == "|":
            found.append(source[start:position].strip())
            start = position + 1
        position = end if end > position else position + 1
    return [*found, source[start:].strip()]


def _refers_to_match(replacement: str, by: str) -> bool:
    """Whether a replacement has an ``&`` outside of quotes."""
    bare = re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", "", replacement, flags=re.DOTALL)
    return "&" in bare or ("$" in bare and "&" in by)


def _without_quotes(source: str) -> str:
    """A word without what stands in quotes and expansions."""
    return re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\$\{[^}]*\}", "", source, flags=re.DOTALL)

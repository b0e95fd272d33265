"""verl: the reward blocks at the top of a config, which most trainers of 0.8 copy into the ``reward`` tree before they read it.

The others, and all of 0.9 but the fully asynchronous one, accept the blocks and score by the tree alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rlctl.adapters.engine.reading import Read, TextView
from rlctl.adapters.engine.rules import ABSENT, Noted, Reading, dead, misleading, split
from rlctl.adapters.engine.tree import find, put, remove
from rlctl.adapters.verl.asynchronous import is_beside, is_fully
from rlctl.common.messages.reasons import said
from rlctl.common.report import Bucket, Entry, Finding, finding
from rlctl.documents import Document, KeyPath, dotted
from rlctl.documents.paths import copied

MODEL = "reward_model"
BLOCKS: Mapping[str, str] = {
    "custom_reward_function": "reward.custom_reward_function",
    "sandbox_fusion": "reward.sandbox_fusion",
}
"""Blocks that replace the one of the tree as a whole."""
KEYS: Mapping[str, str] = {
    f"{MODEL}.num_workers": "reward.num_workers",
    f"{MODEL}.reward_manager": "reward.reward_manager.name",
    f"{MODEL}.reward_loop_source": "reward.reward_manager.source",
    f"{MODEL}.reward_loop_module_path": "reward.reward_manager.module.path",
    f"{MODEL}.reward_loop_class_name": "reward.reward_manager.module.name",
    f"{MODEL}.model.path": "reward.reward_model.model_path",
    **{
        f"{MODEL}.{name}": f"reward.reward_model.{name}"
        for name in ("enable", "enable_resource_pool", "n_gpus_per_node", "nnodes")
    },
}
"""Keys that replace one of the tree, unless they are null."""
SECTIONS: Mapping[str, str] = {
    f"{MODEL}.reward_kwargs": "reward.reward_kwargs",
    f"{MODEL}.rollout": "reward.reward_model.rollout",
}
"""Sections whose keys replace those of the tree, unless they are null."""
INERT = (f"{MODEL}.model.external_lib", f"{MODEL}.model.trust_remote_code")
"""Keys of the blocks that nothing reads since 0.8."""
_REASON = "its trainer reads rewards from the reward section"
NOTES: list[Noted] = [  # 0.8.0 experimental/reward_loop/reward_loop.py, migrate_legacy_reward_impl
    *(
        note
        for old, new in {**BLOCKS, **SECTIONS}.items()
        for note in misleading(_REASON, f"{old}.**", since="0.8", instead=f"{new}.**")
    ),
    *(note for old, new in KEYS.items() for note in misleading(_REASON, old, since="0.8", instead=new)),
    *dead("verl never reads it", *INERT, since="0.8"),
]
NOT_COPYING = ("main_ppo_sync", "one_step_off_policy")
"""Parts of the names of 0.8's programs that do not copy the blocks, which ``main_ppo`` and ``fully_async_main`` do."""
TREE: Mapping[str, str] = {
    **{new: old for old, new in {**BLOCKS, **SECTIONS, **KEYS}.items()},
    "sandbox_fusion": f"{MODEL}.sandbox_fusion",
    "reward.sandbox_fusion": f"{MODEL}.sandbox_fusion",
}
"""The tree by the keys of 0.7, whose last patch release has both and reads the older ones first."""


def _copies(view: Reading) -> bool:
    """Whether the trainer of a file copies the blocks; a file alone is for ``main_ppo``, or for a trainer that its keys name."""
    if view.version >= (0, 9) or is_beside(view):
        return is_fully(view)
    return not any(name in view.options.get("program", "") for name in NOT_COPYING)


def as_copied(document: Document, view: TextView) -> tuple[Document, dict[KeyPath, KeyPath], list[Entry]]:
    """A document as its trainer sees it, the keys of the text that the copied ones come from, and those that they replace."""
    if view.version == (0, 7):
        moves, gone = dict(_of_tree(document)), []
    elif view.version < (0, 8) or not _copies(view):
        return document, {}, []
    else:
        moves = dict(_moves(document))
        gone = [path for path in _replaced(document, moves) if path not in moves]
    if not moves:
        return document, {}, []
    values = copied(document.values)
    for path in (*moves, *gone):
        remove(values, path)
    for old, new in moves.items():
        put(values, new, find(document.values, old))
    marks = {place: at for place, at in document.marks.items() if place not in moves}
    marks |= {new: document.at(old) for old, new in moves.items()}
    comments = {moves.get(path, path): comment for path, comment in document.comments.items()}
    explicit = document.explicit and frozenset(moves.get(path, path) for path in document.explicit)
    replaced = [
        Entry(
            dotted(path),
            Bucket.DEAD,
            find(document.values, path),
            document.at(path),
            (),
            said("{name} decides", name=path[-1] if isinstance(path[-1], str) else dotted(path)),
        )
        for path in gone
    ]
    moved = replace(document, values=values, marks=marks, comments=comments, explicit=explicit)
    return moved, {new: old for old, new in moves.items()}, replaced


def _moves(document: Document) -> Iterator[tuple[KeyPath, KeyPath]]:
    """Each leaf of the blocks that counts, with its place in the tree."""
    values = document.values
    leaves = list(document.leaves())
    for old, new in (*BLOCKS.items(), *SECTIONS.items()):
        start, to = split(old), split(new)
        inside = [(path, value) for path, value in leaves if path[: len(start)] == start]
        if old in BLOCKS and all(value is None for _, value in inside):
            continue
        yield from ((path, (*to, *path[len(start) :])) for path, value in inside if old in BLOCKS or value is not None)
    for old, new in KEYS.items():
        if find(values, split(old)) not in (ABSENT, None):
            yield split(old), split(new)


def _of_tree(document: Document) -> Iterator[tuple[KeyPath, KeyPath]]:
    """Each leaf of the tree that no older key of 0.7 sets, with that key."""
    for path, value in document.leaves():
        for new, old in TREE.items():
            place = split(new)
            if path[: len(place)] == place and value is not None:
                to = (*split(old), *path[len(place) :])
                if find(document.values, to) in (ABSENT, None):
                    yield path, to


def _replaced(document: Document, moves: Mapping[KeyPath, KeyPath]) -> Iterator[KeyPath]:
    """The leaves of the tree that a copy replaces."""
    whole = [split(new) for old, new in BLOCKS.items() if any(path[:1] == split(old) for path in moves)]
    for path, _ in document.leaves():
        if path in moves.values() or any(path[: len(block)] == block for block in whole):
            yield path


def in_own_keys(read: Read, moves: Mapping[KeyPath, KeyPath], replaced: Iterable[Entry]) -> Read:
    """What was read of a copied document, by the keys of its text.

    Args:
        read: of the copied document.
        moves: the places in the tree, each with the key of the text.
        replaced: the keys that the copies replace.
    """
    names = {dotted(new): dotted(old) for new, old in moves.items()}

    def own(keys: Mapping[KeyPath, tuple[KeyPath, ...]]) -> dict[KeyPath, tuple[KeyPath, ...]]:
        return {to: tuple(moves.get(path, path) for path in of) for to, of in keys.items()}

    report = replace(
        read.report,
        accounting=[
            *(replace(entry, key=names.get(entry.key, entry.key)) for entry in read.report.accounting),
            *replaced,
        ],
        findings=[_renamed(item, names) for item in read.report.findings],
    )
    loaded = read.loaded and replace(
        read.loaded,
        sources={
            to: replace(source, key=names.get(source.key, source.key)) for to, source in read.loaded.sources.items()
        },
    )
    return replace(read, report=report, loaded=loaded, implied=own(read.implied), stated=own(read.stated))


def _renamed(item: Finding, names: Mapping[str, str]) -> Finding:
    if item.key not in names:
        return item
    params = {name: value for name, value in item.params.items() if name != "key"}
    return finding(item.id, item.level, names[item.key], item.at, option=item.option, ranked=item.ranked, **params)

"""The help of a command line, made from the declarations: a first page, and a page for each group of options."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sslkit.cli import stand_ins
from sslkit.cli.stand_ins import ALL
from sslkit.cli.words import WORDS

from sslkit import objectives, regularizers
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.options.members import classes, signature
from sslkit.options.settings import Declared, as_word, iter_settings
from sslkit.terminal.say import as_started, entry, reflow

TEXTS = 30  # column in which the texts begin


def show(help: str) -> None:
    """Print a help text, the last thing that is done with stand-ins."""
    print(as_started(help), flush=True)
    stand_ins.remove()


@dataclass(frozen=True)
class Section:
    """A part of a help text. group: of its options, GROUP.NAME=VALUE; "" on the first page."""

    title: str
    lines: Sequence[str]
    group: str = ""
    names: Sequence[str] = ()


def plain_help(settings: Any, usage: str, options: Mapping[str, type], part: str = "") -> str:
    """Help text: every setting, and the options of each part, with default and description. part: see `page`."""
    sections = list(_settings_sections(settings))
    for group, owner in options.items():
        names, texts = (
            members.options(owner),
            {name: option.help for name, option in members.declarations(owner).items()},
        )
        lines = list(_option_lines(f"{group}." if group else "", names, texts))
        sections.append(Section(f"options of {group}" if group else "", lines, group, tuple(names)))
    return page(usage, sections, part)


def page(usage: str, sections: Sequence[Section], part: str = "") -> str:
    """The text of a help. part: "" is the first page, where a group is one line; a group's name; or ALL.

    Raises UserError for another part.
    """
    groups = {section.group.partition(".")[0]: None for section in sections if section.group}
    if part not in ("", ALL, *groups):
        raise UserError(f"there is no --help={part}: {members.nearest(part, (ALL, *groups))}")
    lines = [reflow(usage)] if part in ("", ALL) else []
    for section in sections:
        if (part == "" and not section.group) or part in (ALL, section.group.partition(".")[0]):
            lines += ["", section.title] if section.title else [""]
            lines += section.lines
    if part == "" and groups:
        lines += ["", "groups of options; --help=GROUP says what each is, --help=all says it of all"]
        lines += [
            entry(f"{section.group}.*", ", ".join(section.names), TEXTS)
            for section in sections
            if section.group and section.names
        ]
    return "\n".join(line.rstrip() for line in lines).lstrip("\n")


def help_text(settings: Any, method: str, usage: str, conf: Path, part: str = "") -> str:
    """Help text: the settings, every member in one line, and the options of the method. part: see `page`."""
    first, *groups = _settings_sections(settings)
    named = entry("experiment=null", f"settings of a file in experiment/: {', '.join(experiment_names(conf))}", TEXTS)
    sections = [dataclasses.replace(first, lines=[*first.lines, named])]
    for title, family in (("objectives", objectives), ("regularisers", regularizers)):
        lines = [entry(name, members.summary(family.find(name)), TEXTS) for name in family.names()]
        sections.append(Section(f"{title}; begin with {family.BEGIN_WITH}", lines))
    return page(usage, [*sections, *groups, *_method_sections(method)], part)


def _method_sections(method: str) -> Iterator[Section]:
    texts = {group: members.texts(member) for group, member in classes(method).items()}
    views, published = members.texts(View) | members.texts(ViewRecipe), classes(method)["objective"].views.values()
    texts["views"] = {name: f"{views[name]}; null: {value}" for name, value in published.items()}
    title = f"options of method={method}"
    for group, options in signature(method).items():
        lines = list(_option_lines(f"method.{group}.", options, texts[group]))
        yield Section(title, lines, f"method.{group}", tuple(options))
        title = ""


def _option_lines(before: str, options: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[str]:
    for name, value in options.items():
        yield entry(f"{before}{name}={as_word(value)}", _text(texts.get(name, "")), TEXTS)


def _text(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def experiment_names(conf: Path) -> list[str]:
    """The names of the files of `experiment/`, those of its folders as FOLDER/NAME, after the others."""
    folder = conf / "experiment"
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")]
    return sorted(names, key=lambda name: ("/" in name, name))


def _settings_sections(settings: Any) -> Iterator[Section]:
    """Yield the section of the settings themselves, then that of each group."""
    groups: dict[str, list[Declared]] = {"": []}
    for option in iter_settings(settings):
        groups.setdefault(option.path.rpartition(".")[0], []).append(option)
    short = [
        dataclasses.replace(option, path=group)
        for group, name in WORDS.items()
        for option in groups.get(group, ())
        if option.path == f"{group}.{name}"
    ]
    groups[""][1:1] = short  # below what is trained: what it is trained on
    for group, options in groups.items():
        lines = [entry(f"{option.path}={as_word(option.default)}", option.help, TEXTS) for option in options]
        names = tuple(option.path.rpartition(".")[2] for option in options)
        yield Section(f"settings of {group}" if group else "settings, with their defaults", lines, group, names)

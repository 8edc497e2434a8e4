"""What every built tool says of itself: --help and --man name the same commands and the same options of each, and the manual
is clean under `mandoc -Tlint -Wwarning`. Every page is one that the build makes or installs, and no heading of it is taken for
a macro."""

import re
import shutil
import subprocess

import lint

NAGIOS = {"ms-diag", "ms-netcheck"}  # where 2 is "critical", misuse is "unknown"

def ask(*command, text=None):
    return subprocess.run(command, capture_output=True, text=True, input=text, check=False, timeout=60)


def help_rows(text, title):
    """The first words of the rows under "title:" in a help text; for an option its long name."""
    section = re.search(rf"^{title}:\n((?:[ \t].*\n|\n)*)", text, re.M | re.I)
    rows = re.findall(r"^  ?(\S.*)$", section.group(1), re.M) if section else []
    if title == "commands":
        return {row.split()[0] for row in rows}
    return {match.group(1) for row in rows if (match := re.search(r"(?:^|\s)--([a-z][a-z0-9-]*)", row))} - {"help", "version"}


def manual(text):
    """command -> its options, from the COMMANDS section of an mdoc page."""
    section = re.search(r"^\.Sh COMMANDS\n(.*?)(?=^\.Sh |\Z)", text, re.M | re.S)
    commands = {}
    for block in re.split(r"^\.Ss ", section.group(1), flags=re.M)[1:] if section else []:
        options = {name for row in re.findall(r"^\.It (.*)$", block, re.M) for name in re.findall(r"Fl -([a-z][a-z0-9-]*)", row)}
        commands[block.split("\n", 1)[0].strip()] = options
    return commands


def differ(what, in_help, in_manual):
    for name in sorted(in_help - in_manual):
        yield f"{what} {name} is in --help, not in the manual"
    for name in sorted(in_manual - in_help):
        yield f"{what} {name} is in the manual, not in --help"


def check_tool(tool):
    answers = {option: ask(tool, option) for option in ("--help", "--man")}
    for option, answer in answers.items():
        if answer.returncode != 0 or not answer.stdout:
            yield f"{tool.name}: {option} exits {answer.returncode} and prints {len(answer.stdout)} characters"
            return
    in_help, in_manual = help_rows(answers["--help"].stdout, "commands"), manual(answers["--man"].stdout)
    if not in_help:
        yield f"{tool.name}: --help names no commands"
    for problem in differ("command", in_help, set(in_manual)):
        yield f"{tool.name}: {problem}"
    for command in sorted(in_help & set(in_manual)):
        answer = ask(tool, command, "--help")
        if answer.returncode != 0:
            yield f"{tool.name}: {command} --help exits {answer.returncode}"
            continue
        for problem in differ("option", help_rows(answer.stdout, "options"), in_manual[command]):
            yield f"{tool.name} {command}: {problem}"
    others = re.findall(r"^\.Xr (\S+ \d)", answers["--man"].stdout.partition("\n.Sh SEE ALSO\n")[2], re.M)
    for page in sorted({page for page in others if others.count(page) > 1}):
        yield f"{tool.name}: SEE ALSO names {page} twice"
    if "--man" not in answers["--help"].stdout:
        yield f"{tool.name}: --help does not tell of --man"
    misuse = 3 if tool.name in NAGIOS else 2
    if ask(tool, "--no-such-option").returncode != misuse:
        yield f"{tool.name}: an unknown option does not exit {misuse}"
    if shutil.which("mandoc"):
        for line in ask("mandoc", "-Tlint", "-Wwarning", text=answers["--man"].stdout).stdout.splitlines():
            yield f"{tool.name}: mandoc: {line}"
    else:
        print("note: there is no mandoc here, the manual pages were not linted")


def check_pages(tree):
    lists = "\n".join(tree.text(f) for f in tree.files if f.endswith("CMakeLists.txt"))
    tools = [f"{f[6:-4]}.1" for f in tree.files if re.fullmatch(r"tools/ms-[a-z]+\.cpp", f)]
    for page in tools + [f[4:] for f in tree.files if f.startswith("man/")]:
        if not re.search(rf"(?<![\w.-]){re.escape(page)}\b", lists):
            yield f"CMakeLists.txt:1: nothing makes or installs the page {page}"
    for page in (f for f in tree.files if f.startswith("man/")):
        for number, line in enumerate(tree.lines(page), 1):
            if re.match(r"\.S[sh] (An|At|Do|In|No|So)\b", line):
                yield f"{page}:{number}: the heading begins with a macro of mdoc, write \\&{line[4:]}"


def check(tree, args):
    yield from check_pages(tree)
    tools = sorted(args.bin.glob("ms-*"))
    if not tools:
        raise lint.Skip("no tool is built")
    for tool in tools:
        yield from check_tool(tool)


if __name__ == "__main__":
    lint.run(check, __doc__)

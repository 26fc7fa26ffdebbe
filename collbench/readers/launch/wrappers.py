"""Commands that start another one: what they let through of the environment."""

from __future__ import annotations

from collbench.readers.launch import Env, Var

RUNTIMES = frozenset(("docker", "podman", "nerdctl"))
_EXEC_VALUED = frozenset(("-e", "--env", "--env-file", "-u", "--user", "-w", "--workdir"))


def after_options(words: list[str], valued: str) -> list[str]:
    """Skip options; those whose letter is in `valued` take the next word."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        if len(word) == 2 and word[1] in valued:
            at += 1
    return words[at:]


def container_exec(words: list[str], env: Env, line: int) -> tuple[list[str], Env]:
    """Return the command of ``docker exec`` and what it passes on of the caller's environment."""
    named: Env = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word, equals, value = words[at].partition("=")
        at += 1
        if word in _EXEC_VALUED and not equals and at < len(words):
            value = words[at]
            at += 1
        if word in ("-e", "--env"):
            name, given, text = value.partition("=")
            if given:
                named[name] = Var(text, "script", line)
            elif name in env:
                named[name] = env[name]
    return words[at + 1 :], named


def env_command(words: list[str], env: Env, line: int) -> tuple[list[str], Env]:
    """Return the command behind ``env`` and its environment."""
    found = dict(env)
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("-i", "-", "--ignore-environment"):
            found = {}
        elif word in ("-u", "--unset") and at + 1 < len(words):
            at += 1
            found.pop(words[at], None)
        elif "=" in word and not word.startswith("-"):
            name, _, value = word.partition("=")
            found[name] = Var(value, "script", line)
        elif not word.startswith("-"):
            break
        at += 1
    return words[at:], found


def sudo(words: list[str], env: Env) -> tuple[list[str], Env]:
    """Return the command and what sudo's default policy (env_reset) lets through."""
    kept: Env = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("-E", "--preserve-env"):
            kept |= env
        elif word.startswith("--preserve-env="):
            names = word.partition("=")[2].split(",")
            kept |= {name: env[name] for name in names if name in env}
        elif word in ("-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R"):
            at += 1
        elif "=" in word and not word.startswith("-"):
            name, _, value = word.partition("=")
            kept[name] = Var(value, "script")
        elif not word.startswith("-"):
            break
        at += 1
    return words[at:], kept


def mpi(words: list[str], env: Env, line: int) -> tuple[list[str], Env, bool]:
    """Return command, environment, and whether variables are dropped on other hosts."""
    named: Env = {}
    remote = False
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word == "-x" and at + 1 < len(words):
            name, equals, value = words[at + 1].partition("=")
            if equals:
                named[name] = Var(value, "script", line)
            elif name in env:
                named[name] = env[name]
            at += 1
        elif word in ("--mca", "-mca", "--prtemca", "-genv", "--genv", "-env"):
            if "env" in word and at + 2 < len(words):
                named[words[at + 1]] = Var(words[at + 2], "script", line)
            at += 2
        elif word in ("-H", "-host", "--host", "-hosts", "--hosts"):
            hosts = words[at + 1] if at + 1 < len(words) else ""
            remote = remote or any(
                not host.startswith(("localhost", "127.")) for host in hosts.split(",")
            )
            at += 1
        elif word in ("--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f"):
            remote = True
            at += 1
        elif word in ("-n", "-np", "--np", "-c", "--map-by", "--bind-to", "--rank-by", "--prefix",
                      "-N", "-npernode", "--npernode", "-wdir", "--wdir", "-ppn"):  # fmt: skip
            at += 1
        at += 1
    if not remote:
        return words[at:], env | named, False
    return words[at:], named, bool(set(env) - set(named))

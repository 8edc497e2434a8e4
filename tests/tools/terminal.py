"""Runs a command on a terminal of its own: terminal.py COLUMNS LINES COMMAND..., and prints what it wrote there."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

columns, lines, *command = sys.argv[1:]
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", int(lines), int(columns), 0, 0))
process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
os.close(theirs)
text = b""
while True:
    try:
        part = os.read(ours, 65536)
    except OSError:  # the other side is closed
        break
    if not part:
        break
    text += part
sys.stdout.buffer.write(text.replace(b"\r\n", b"\n"))
sys.exit(process.wait())

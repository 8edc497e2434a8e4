#!/usr/bin/env python3
"""Checks what the compiler made of the kernels. A vectorised kernel must not use local memory (spilled registers, arrays
that are indexed at run time), and must access global memory by 64 bits or more, except as NARROW says; and as many blocks as
BLOCKS says must fit a multiprocessor. Needs nvdisasm, and no GPU."""
import argparse
import collections
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

# Kernels that are not vectorised, and why.
SCALAR = [
    (r"number|clear_kernel|clip_factor_kernel|combine_kernel|add_totals|add_norms", "a number for each token or block"),
    (r"add_partials_kernel<", "the threads of a warp read 128 adjacent bytes"),
    (r"total_partials<|reduce_elements<", "types and addresses that vectors do not fit"),
    (r"normal_kernel<", "a row may begin within a thread's numbers, and cosine has a table: once a run"),
    (r"route_(bwd_)?kernel|place_slots|count_experts|bias_kernel", "a router's numbers: few, and a warp reads neighbours"),
    (r"round_kernel<", "for GPUs without fp8, where speed does not matter"),
    (r"each_vector(_amax<\w+, |<)1, |(amax_kernel|backward_kernel|column_partials|stats_kernel|reduce_vectors|lookup|sum_runs"
     r"|combine|factors_kernel"
     r"|\w+_positions|adamw_kernel|(lamb|muon)_\w+_kernel)<([\w, ]+, )?1>|norm_(fwd|bwd)<\w+, 1, ", "memory that is not aligned"),
    (r"cub::", "of CUB"),
]
# Accesses below 64 bits in vectorised kernels: the most of them, and why.
NARROW = [
    (r"sum_runs<", {"LDG32": 34}, "tokens and their positions, the same for all threads of a block"),
    (r"lookup<", {"LDG32": 1}, "the row's token"),
    (r"combine<", {"LDG32": 8}, "the slots of the row's token"),
    (r"factors_kernel<", {"STG32": 1}, "a row's sum"),
    (r".*Swiglu(Fwd|Bwd)<", {"LDG32": 1}, "the row's factor"),
    (r"(amax_kernel|each_vector_amax|norm_(fwd|bwd))<", {"REDG32": 1}, "the block's maximum"),
    (r"quantize_(rows|columns)<", {"LDG32": 1, "STG32": 1}, "amax and the factor of a tensor"),
    (r"quantize_columns<\w+, true>", {"STG32": 1}, "a column's sum of a tile"),
    (r"stats_kernel<", {"LDG32": 3, "LDG16": 2, "STG32": 3}, "a row's target and results, and its end"),
    (r"backward_kernel<", {"LDG32": 2}, "a row's log of the sum and target"),
    (r"(adamw|lamb_\w+|muon_(momentum|apply))_kernel<", {"LDG32": 1}, "the factor of clipping"),
    (r"norm_fwd<", {"STG32": 2}, "a row's mean and rstd"),
    (r"norm_bwd<", {"LDG32": 4}, "mean and rstd of a row and of the next one"),
]
# Accesses of local memory: the most of them, and why.
LOCAL = [
    (r"norm_bwd<\w+, \d+, 8, ", 2000, "rows of more than 12,288 columns, wider than those of models"),
    (r"norm_fwd<\w+, \d+, 8, \w+, 0>", 2000, "rows of more than 16,384 columns, wider than those of models"),
    (r"norm_fwd<float, 4, 8, ", 100, "a model's activations are in bf16"),
    (r"norm_bwd<__nv_bfloat16, 8, 4, true>", 16, "a counter and addresses, once a row"),
]
# How many blocks of how many threads fit a multiprocessor at least.
BLOCKS = [
    (r"each_vector(_amax<\w+, |<)[48], |(squares_partials|reduce_vectors|lookup)<", 256, 4,
     "half of the threads hide memory's latency"),
    (r"(adamw|(lamb|muon)_\w+)_kernel<([\w, ]+, )?4>", 256, 4, "likewise"),
    (r"column_partials<\w+, [48]>", 256, 4, "two of short rows, and of wide ones as many as fit"),
    (r"norm_bwd<__nv_bfloat16, 8, 1, ", 192, 4, "partials_of(): four, up to 1536 columns"),
    (r"norm_bwd<__nv_bfloat16, 8, 2, ", 128, 4, "partials_of(): four, up to 2048 columns"),
    (r"norm_bwd<__nv_bfloat16, 8, 2, ", 256, 2, "partials_of(): two, up to 4096 columns"),
    (r"norm_bwd<__nv_bfloat16, 8, 4, ", 384, 1, "partials_of(): one, of 12288 columns"),
    (r"norm_fwd<__nv_bfloat16, 8, 8, \w+, 32>", 128, 7, "up to 2048 columns: 28 rows, read while others are used"),
    (r"norm_fwd<__nv_bfloat16, 8, 4, \w+, 0>", 128, 8, "4096 columns: 64 KiB of rows"),
    (r"norm_fwd<__nv_bfloat16, 8, 4, \w+, 0>", 384, 3, "12288 columns: 72 KiB of rows"),
    (r"norm_fwd<__nv_bfloat16, 8, 4, \w+, 0>", 576, 2, "most_norm_threads()"),
]
REGISTERS, THREADS, MOST_BLOCKS = 65536, 2048, 32  # of a multiprocessor of A100, H100, H200

Kernel = collections.namedtuple("Kernel", "name arch accesses registers")


def cubins(path, work):
    """The kernels' ELF files that nvcc embedded in an object file, beside PTX."""
    fatbin = os.path.join(work, "fatbin")
    subprocess.run(["objcopy", "-O", "binary", "--only-section=.nv_fatbin", path, fatbin], check=True)
    with open(fatbin, "rb") as file:
        data = file.read()
    at = 0
    while at + 16 <= len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != 0xBA55ED50:
            sys.exit(f"{path}: its .nv_fatbin is of a format that this script does not know")
        entry, at = at + header, at + header + size
        while entry < at:
            _, _, own_header, own_size = struct.unpack_from("<HHIQ", data, entry)
            code = data[entry + own_header:entry + own_header + own_size]
            if code.startswith(b"\x7fELF"):
                yield code
            entry += own_header + own_size
        at = (at + 7) // 8 * 8


def registers(elf):
    """The registers of a thread, by kernel: EIATTR_REGCOUNT of .nv.info."""
    table, = struct.unpack_from("<Q", elf, 40)
    count, names_at = struct.unpack_from("<HH", elf, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * i) for i in range(count)]

    def text(section, offset):
        begin = sections[section][4] + offset
        return elf[begin:elf.index(b"\0", begin)].decode()

    found = {text(names_at, s[0]): s for s in sections}
    symbols, info = found[".symtab"], found[".nv.info"]
    at, end, result = info[4], info[4] + info[5], {}
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", elf, at)
        if form == 4 and attribute == 0x2F:
            symbol, value = struct.unpack_from("<II", elf, at + 4)
            result[text(symbols[6], struct.unpack_from("<I", elf, symbols[4] + 24 * symbol)[0])] = value
        at += 4 + (size if form == 4 else 0)
    return result


def accesses(sass):
    """How often a kernel's instructions access memory, by kind and bits: {"LDG128": 2, ...}. The G, for global memory, is
    added to instructions without one."""
    counts = collections.Counter()
    for kind, suffixes in re.findall(r"\*/ +(?:@!?U?P\d+ +)?((?:LD|ST)[GL]?|(?:ATOM|RED)G?)((?:\.\w+)*) ", sass):
        bits = re.search(r"\.[USB]?(128|64|32|16|8)\b", suffixes)
        counts[(kind if kind[-1] in "GL" else kind + "G") + (bits[1] if bits else "32")] += 1
    return counts


def kernels(paths, wanted, nvdisasm):
    found = []
    with tempfile.TemporaryDirectory() as work:
        for path in paths:
            for elf in cubins(path, work):
                arch = f"sm_{struct.unpack_from('<I', elf, 48)[0] >> 8 & 0xFFFF}"  # of the ELF header's flags
                if wanted not in (None, arch):
                    continue
                cubin = os.path.join(work, "cubin")
                with open(cubin, "wb") as file:
                    file.write(elf)
                sass = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
                counts, parts = registers(elf), re.split(r"\n\t\.section\t\.text\.(\w+),.*\n", sass)
                for name, body in zip(parts[1::2], parts[2::2]):
                    found.append(Kernel(name, arch, accesses(body), counts[name]))
    plain = subprocess.run(["c++filt"], input="\n".join(k.name for k in found), check=True, capture_output=True, text=True)
    for kernel, name in zip(found, plain.stdout.splitlines()):
        name = re.sub(r"ms::kernels::|^void |\(anonymous namespace\)::|_GLOBAL__N_\w+::", "", name).replace("> >", ">>")
        yield kernel._replace(name=re.sub(r"\(.*", "", name))


def blocks(kernel, threads):
    a_warp = (kernel.registers * 32 + 255) // 256 * 256  # registers are given to warps by 256
    return min(REGISTERS // a_warp * 32 // threads, THREADS // threads, MOST_BLOCKS)


def problems(kernel):
    def rows(table):
        return [row for row in table if re.match(row[0], kernel.name)]

    if rows(SCALAR):
        return
    narrow = collections.Counter()
    for _, most, _ in rows(NARROW):
        narrow.update(most)
    local = sum(most for _, most, _ in rows(LOCAL))
    for access, count in kernel.accesses.items():
        kind, bits = re.fullmatch(r"(\D+)(\d+)", access).groups()
        if kind not in ("LDL", "STL") and int(bits) < 64 and count > narrow[access]:
            yield f"{count} accesses {access} to global memory of {bits} bits, at most {narrow[access]} are expected"
    spilled = sum(count for access, count in kernel.accesses.items() if access[:3] in ("LDL", "STL"))
    if spilled > local:
        yield f"{spilled} accesses to local memory, at most {local} are expected"
    for _, threads, least, reason in rows(BLOCKS):
        if blocks(kernel, threads) < least:
            yield (f"{kernel.registers} registers: {blocks(kernel, threads)} blocks of {threads} threads fit a multiprocessor, "
                   f"not {least} ({reason})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print what every kernel accesses")
    parser.add_argument("--arch", help="only this one, for example sm_90")
    parser.add_argument("objects", nargs="+", help="object files of nvcc")
    arguments = parser.parse_args()
    nvdisasm = os.environ.get("NVDISASM") or shutil.which("nvdisasm")
    if not nvdisasm:
        sys.exit("there is no nvdisasm on PATH: install what sass_test.sh does, and set NVDISASM to its bin/nvdisasm")
    failed = seen = 0
    for kernel in kernels(arguments.objects, arguments.arch, nvdisasm):
        seen += 1
        if arguments.list:
            counts = ", ".join(f"{count} {access}" for access, count in sorted(kernel.accesses.items()))
            print(f"{kernel.arch} {kernel.name}: {kernel.registers} registers, {counts}")
        for problem in problems(kernel):
            failed += 1
            print(f"{kernel.arch} {kernel.name}: {problem}")
    print(f"{seen} kernels, {failed} problems")
    return 1 if failed or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

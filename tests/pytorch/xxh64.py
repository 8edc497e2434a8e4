"""XXH64, for hashes of a few kilobytes."""
import struct

PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
MASK = (1 << 64) - 1


def rotl(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def rounded(lane, word):
    return rotl((lane + word * PRIMES[1]) & MASK, 31) * PRIMES[0] & MASK


def xxh64(data):
    p1, p2, p3, p4, p5 = PRIMES
    at, size = 0, len(data)
    digest = p5
    if size >= 32:
        lanes = [(p1 + p2) & MASK, p2, 0, -p1 & MASK]
        for at in range(0, size - 31, 32):
            lanes = [rounded(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at))]
        at += 32
        digest = sum(rotl(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            digest = ((digest ^ rounded(0, lane)) * p1 + p4) & MASK
    digest = (digest + size) & MASK
    for at in range(at, size - 7, 8):
        digest = (rotl(digest ^ rounded(0, struct.unpack_from("<Q", data, at)[0]), 27) * p1 + p4) & MASK
    at = size & ~7
    if size & 4:
        digest = (rotl(digest ^ struct.unpack_from("<I", data, at)[0] * p1 & MASK, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        digest = rotl(digest ^ byte * p5 & MASK, 11) * p1 & MASK
    digest = (digest ^ digest >> 33) * p2 & MASK
    digest = (digest ^ digest >> 29) * p3 & MASK
    return digest ^ digest >> 32

// The file of one rank's trace: ms-trace(5) in structs. Little-endian, every field at its natural alignment, all
// padding named. Written by trace_file.cpp, read by tracepp/read/trace_reader.cpp. The areas, in order:
//  - two headers: readers use the one with a valid checksum and more `flushes`, so that a writer that is killed leaves
//    one valid header
//  - strings: u16 length and bytes, one after the other; an id is a position in this list, 0 is the empty string
//  - descriptors, groups: tables that events and descriptors refer to by index
//  - probes, sums: rings, entry n is at n % capacity
//  - pages: a ring of 4 KiB pages of events, page n is at n % capacity
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace ms::trace::format {

static_assert(std::endian::native == std::endian::little, "traces are little-endian");

inline constexpr std::array<char, 8> kMagic{'M', 'S', 'T', 'R', 'A', 'C', 'E', '\n'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kPageBytes = 4096;
inline constexpr std::uint16_t kNone16 = 0xffff;
inline constexpr std::uint32_t kNone32 = 0xffffffff;

struct Area {
  std::uint64_t offset = 0;    // in bytes from the start of the file
  std::uint64_t capacity = 0;  // in entries; for strings in bytes
  std::uint64_t used = 0;      // entries ever written, of which a ring keeps the last `capacity`; strings: bytes
};

// How the run ended, as far as this rank knows: it failed here (failed), a wait for another rank reached its deadline
// (timed_out), or another rank stopped it (stopped).
enum class Ending : std::uint32_t { running = 0, done = 1, failed = 2, timed_out = 3, stopped = 4 };

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t header_bytes = sizeof(Header);
  std::uint64_t checksum = 0;  // XXH64 of the header with this field 0
  std::uint64_t flushes = 0;
  std::uint32_t rank = 0, world = 1;
  std::uint32_t dp = 1, pp = 1, tp = 1;  // sizes of the axes
  std::uint32_t ranks_on_node = 1;
  std::uint32_t pid = 0;
  std::uint16_t host = 0, run = 0;  // strings: the node's name, the run's unique id
  std::uint16_t device = 0;         // string: "cpu", "cuda", "sim"
  std::uint16_t ending_text = 0;    // string: the error of a failed run
  Ending ending = Ending::running;
  std::int64_t clock_ns = 0;     // of the rank's monotonic clock, the clock of all times here
  std::int64_t realtime_ns = 0;  // of the wall clock at the same moment, since 1970
  std::uint64_t dropped = 0;     // events lost because the buffer was full
  std::int64_t flushed_ns = 0;   // when this header was written, by the monotonic clock: the rank was alive then
  std::uint32_t microbatches = 0, chunks = 0;  // per step
  double flops_per_step = 0;                   // of all ranks, `causal` convention; 0: unknown
  double peak_flops = 0;                       // of one rank's device; 0: unknown
  std::int32_t ending_rank = -1;               // the rank that the error blames; -1: none
  std::uint32_t reserved = 0;
  Area strings, descriptors, groups, probes, sums, pages;
};
static_assert(sizeof(Header) == 280 && sizeof(Header) <= kPageBytes);

// The properties that many events share.
struct EventDescriptor {
  std::uint8_t kind = 0, purpose = 0;  // trace::Kind, trace::Purpose
  std::int16_t chunk = -1;             // -1: none
  std::uint16_t group = kNone16;       // communication only
  std::uint16_t name = 0;              // string; empty: the kind is the name
  std::uint16_t type = 0;              // string: what members must agree on besides kind and size: "f32 sum"
  std::uint16_t root = kNone16;        // member that a broadcast sends from
  std::uint32_t reserved = 0;
  std::int64_t size_bytes = -1;  // communication only
};
static_assert(sizeof(EventDescriptor) == 24);

struct GroupEntry {
  std::uint32_t id = 0;     // the same on all members, different for every group of the run
  std::uint16_t name = 0;   // string
  std::uint16_t ranks = 0;  // string: members in the group's order: "0,8,16" or "0-63:8"
};
static_assert(sizeof(GroupEntry) == 8);

// One exchange of timestamps with another rank. The time between asked and answered is the round trip; the peer's clock
// showed peer_ns at some moment in between.
struct Probe {
  std::uint32_t peer = 0;
  std::uint32_t round = 0;                              // all ranks probe in rounds
  std::int64_t asked_ns = 0, answered_ns = 0;           // this rank's clock
  std::int64_t peer_heard_ns = 0, peer_replied_ns = 0;  // the peer's clock
};
static_assert(sizeof(Probe) == 40);

// The columns of a step's sums, in seconds.
enum class SumOf : std::uint32_t {
  busy,     // in ops of the compute stream
  stalled,  // in sections of the compute stream outside ops
  forward,
  backward,
  optimizer,  // whole sections, stalled time included
  data_wait,
  save,
  tp,
  params,
  grads,
  pp_forward,
  pp_backward,
  other_comm,  // communication, from this rank's arrival to the end
  matmul,
  attention,
  norm,
  activation,
  embedding,
  loss,
  elementwise,
  update,  // device ops, by class
};
inline constexpr int kSums = 24;

struct Sum {
  std::uint64_t step = 0;
  std::int64_t begin_ns = 0, end_ns = 0;  // those of the Kind::step event
  std::uint32_t events = 0;
  std::uint32_t unfinished = 0;  // events of the step still in progress
  std::array<float, kSums> seconds{};
};
static_assert(sizeof(Sum) == 128);

// An event. Times are (value << shift) nanoseconds; begin counts from the page's base.
struct Record {
  std::uint32_t begin = kNone32;     // kNone32: issued but not begun
  std::uint32_t duration = kNone32;  // kNone32: begun but not ended
  std::uint16_t descriptor = 0;
  std::uint16_t microbatch = kNone16;
  // Communication: the operation's sequence number in its group, from 0 (modulo 2^32). Sections: microseconds of device
  // computation; kNone32: unknown. Kind::step: the step's number.
  std::uint32_t detail = 0;
};
static_assert(sizeof(Record) == 16);

struct PageHeader {
  std::uint32_t magic = kPageMagic;
  std::uint32_t count = 0;     // number of records
  std::uint64_t checksum = 0;  // XXH64 of the header with this field 0 and `count` records
  std::uint64_t number = 0;    // from 0; stored at number % capacity
  std::int64_t base_ns = 0;
  std::int64_t step = -1;     // step of the first record, unless that is a Kind::step itself; -1: none yet
  std::uint64_t dropped = 0;  // events lost before this page was written
  std::uint32_t shift = 0;
  std::uint32_t reserved = 0;
  std::uint64_t reserved2 = 0;
  static constexpr std::uint32_t kPageMagic = 0x50545342;
};
static_assert(sizeof(PageHeader) == 64);
inline constexpr std::size_t kRecordsAPage = (kPageBytes - sizeof(PageHeader)) / sizeof(Record);
static_assert(kRecordsAPage == 252);

struct Page {
  PageHeader header;
  std::array<Record, kRecordsAPage> records;
};
static_assert(sizeof(Page) == kPageBytes);

}  // namespace ms::trace::format

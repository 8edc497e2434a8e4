// Readers of traces: each format has its seeds; the file's beginning decides who reads it, as in ms-tracepp.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/hash.h"
#include "target.h"
#include "trace/kinds.h"
#include "trace/trace_file.h"
#include "tracepp/hang/witness_judge.h"
#include "tracepp/read/formats.h"
#include "tracepp/read/read.h"

namespace ms::fuzz {
namespace {

namespace format = trace::format;

constexpr std::int64_t kMaxTextBytes = std::int64_t{16} << 20;  // of a file that is unpacked

void read(const std::string& path) {
  const tracepp::RunTrace run =
      tracepp::read_run({path}, {.max_text_bytes = kMaxTextBytes, .threads = 1, .witnesses_suffice = true});
  for (const auto& rank : run.ranks)
    for (const auto& event : rank.events) expect(event.info < run.infos.size(), "an event's info is there");
  const auto& beside = run.witnesses;
  std::vector<tracepp::Hang> hangs{tracepp::judge_stacks(beside.stacks), tracepp::judge_lines(beside.lines, true)};
  if (!beside.ras.empty()) hangs.push_back(tracepp::judge_ras(beside.ras));
  if (!beside.progress.empty()) hangs.push_back(tracepp::judge_progress(beside.progress, 0));
  for (const auto& hang : hangs)
    for (const auto& suspect : hang.suspects)
      expect(suspect.confidence > 0 && suspect.confidence < 1, "a confidence is one");
}

void foreign(std::string_view bytes) { read(put("rank0.json", bytes)); }

// Mends what is hashed: both headers, and the pages where the headers say that they are.
void mend(std::string& file) {
  std::uint64_t pages_at = 0, pages = 0;
  for (const std::size_t at : {std::size_t{0}, std::size_t{format::kPageBytes}}) {
    format::Header header;
    if (at + sizeof header > file.size()) break;
    std::memcpy(&header, file.data() + at, sizeof header);
    header.checksum = 0;
    header.checksum = xxh64({reinterpret_cast<const char*>(&header), sizeof header});
    std::memcpy(file.data() + at, &header, sizeof header);
    pages_at = header.pages.offset, pages = header.pages.capacity;
  }
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(pages, 16); ++i) {
    format::Page page;
    if (pages_at > file.size() || file.size() - pages_at < (i + 1) * sizeof page) break;
    char* const at = file.data() + pages_at + i * sizeof page;
    std::memcpy(&page, at, sizeof page);
    if (page.header.count > format::kRecordsAPage) continue;
    page.header.checksum = 0;
    page.header.checksum =
        xxh64({reinterpret_cast<const char*>(&page), sizeof page.header + page.header.count * sizeof(format::Record)});
    std::memcpy(at, &page, sizeof page);
  }
}

void ours(std::string_view bytes) {
  std::string file(bytes);
  mend(file);
  read(put("rank-00000.mst", file));
}

std::vector<std::string> our_seeds() {
  const std::string dir = std::filesystem::path(put("x", "")).parent_path();
  const std::string path = dir + "/" + trace::trace_file_name(0);
  {
    trace::TraceFile file(
        dir, {.rank = 0, .world = 2, .dp = 2, .host = "n1", .run = "r", .device = "cpu", .microbatches = 1}, 64 << 10);
    const std::uint16_t group =
        file.add_group({.id = 1, .name = file.add_string("dp"), .ranks = file.add_string("0-1")});
    file.add_descriptor({.kind = static_cast<std::uint8_t>(trace::Kind::forward)});
    file.add_descriptor({.kind = static_cast<std::uint8_t>(trace::Kind::all_reduce), .group = group, .size_bytes = 64});
    file.add_probe({.peer = 1, .asked_ns = 100, .answered_ns = 200, .peer_heard_ns = 140, .peer_replied_ns = 150});
    file.add_sum({.step = 1, .begin_ns = 1000, .end_ns = 2000});
    format::Page page{};
    page.header.count = 2, page.header.base_ns = 1000, page.header.step = 1;
    page.records[0] = {.begin = 0, .duration = 500, .descriptor = 0, .microbatch = 0};
    page.records[1] = {.begin = 500, .duration = 100, .descriptor = 1};
    file.write_pages({&page, 1});
    file.commit(0, 1600);
    file.end(format::Ending::done, "", -1);
  }
  std::ifstream file(path, std::ios::binary);
  return {{std::istreambuf_iterator<char>(file), {}}};
}

std::vector<std::string> chrome_seeds() {
  return {
      R"({"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":2,"pg_config":[{"pg_name":"0","pg_desc":"default_pg","ranks":"[0, 1]"}]},)"
      R"("traceEvents":[{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32","pid":0,"tid":7,"ts":1.5,"dur":2.25,)"
      R"("args":{"Collective name":"allreduce","Process Group Name":"0","In msg nelems":1024,"dtype":"Float","Seq":3}},)"
      R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":0,"tid":1,"ts":1,"dur":9},)"
      R"({"ph":"M","name":"thread_name","pid":0,"tid":7,"args":{"name":"stream 7"}}]})",
      R"([{"ph":"B","name":"forward-compute","pid":1,"tid":0,"ts":1,"args":{"step":0,"microbatch":2}},{"ph":"E","pid":1,"tid":0,"ts":5}])",
      R"([{"name":"params-all-gather","ph":"X","pid":3,"tid":0,"ts":"1e3","dur":1,"args":{"model_chunk":1}}])"};
}

std::vector<std::string> nsys_seeds() {
  const std::string events =
      R"({"Type":79,"CudaEvent":{"startNs":"20","endNs":"90","correlationId":7,"deviceId":0,"streamId":"7",)"
      R"("globalPid":"281479271677952","kernel":{"demangledName":"1"}}}
{"Type":48,"TraceProcessEvent":{"startNs":"5","endNs":"9","correlationId":7,"name":"2","globalTid":"281479271677953"}}
{"Type":59,"NvtxEvent":{"Type":59,"Timestamp":"1","EndTimestamp":"99","Text":"step 5","GlobalTid":"281479271677953"}}
{"Type":80,"CudaEvent":{"startNs":"91","endNs":"95","memcpy":{"copyKind":"2","srcKind":2,"dstKind":1}}}
)";
  return {events + R"({"data":["[Unknown]","gemm","cudaLaunchKernel_v7000"]})",
          R"({"data":["[Unknown]"]}{"type":"String","id":"1","value":"gemm"})" + events};
}

std::vector<std::string> flight_seeds() {
  return {
      R"({"version":"2.4","rank":0,"pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"}},)"
      R"("pg_status":{"0":{"last_enqueued_collective":2,"last_started_collective":2,"last_completed_collective":1}},)"
      R"("entries":[{"frames":[{"name":"f","filename":"a.py","line":1}],"record_id":0,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":1,"p2p_seq_id":0,)"
      R"("op_id":1,"profiling_name":"nccl:all_reduce","time_created_ns":1700000000000000000,"input_sizes":[[3,4]],)"
      R"("input_dtypes":["Float"],"output_sizes":[[3,4]],"state":"scheduled","retired":false,"is_p2p":false}]})"};
}

// Protocol 4, as Python writes {"version": "2.4", "rank": 0, "entries": [{...}]}.
std::vector<std::string> pickle_seeds() {
  const auto text = [](std::string_view s) {
    return std::string("\x8c") + static_cast<char>(s.size()) + std::string(s) + "\x94";
  };
  std::string entry = "}\x94(" + text("profiling_name") + text("nccl:all_reduce") + text("process_group") + text("0") +
                      text("default_pg") + "\x86\x94" + text("collective_seq_id") + "K\x01" + text("state") +
                      text("scheduled") + text("input_sizes") +
                      "]\x94]\x94(K\x03K\x04"
                      "eau";
  return {std::string("\x80\x04", 2) + "}\x94(" + text("version") + text("2.4") + text("rank") + std::string("K\0", 2) +
          text("entries") + "]\x94" + entry + "a" + "u."};
}

std::vector<std::string> watchdog_seeds() {
  return {
      "[rank7]:[E419 x.cpp:6] [Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4486, "
      "OpType=ALLTOALL, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600073 milliseconds before timing out.\n"
      "[rank7]:[E419 x.cpp:7] [PG ID 2 PG GUID 9(tp) Rank 7] Exception (either an error or timeout) detected by "
      "watchdog "
      "at work: 4486, last enqueued NCCL work: 4489, last completed NCCL work: 4485.\n"};
}

std::vector<std::string> ras_seeds() {
  return {
      "Job summary\n===\n\n  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node\n"
      "      2          4            1          8        8\n\nCommunicators... (0.00s)\n===\n\n"
      "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
      "    0         1         2         4         8         8   RUNNING  MISMATCH\n\nDEAD\n"
      "  1 job process is considered dead\n  Process 4 on node n1 managing GPU 0\n\n#0-0 (fa01) MISMATCH\n"
      "  Communicator ranks have different AllReduce operation counts\n  7 ranks have launched up to operation 640\n"
      "  Rank 5 has launched up to operation 630 -- GPU 1 managed by process 5 on node n2\n",
      R"({"nccl_version":"2.28.7","communicators_count":1,"communicators":[{"hash":"0xfa","size":2,"ranks":[)"
      R"({"rank":0,"host":"n1","pid":4,"cuda_dev":0,"status":{"init_state":0,"async_error":6,"abort_flag":false},)"
      R"("collective_counts":{"AllReduce":5}}],"missing_ranks":[{"rank":1,"host":"n2","pid":5,"cuda_dev":1,)"
      R"("status":{"unresponsive":true,"considered_dead":false}}]}]})"};
}

std::vector<std::string> stack_seeds() {
  return {
      "Process 7: python train.py\nPython v3.12\n\nThread 7 (idle): \"MainThread\"\n    wait "
      "(torch/distributed/distributed_c10d.py:25)\n",
      "Thread 0x7f (most recent call first):\n  File \"train.py\", line 3 in load\n",
      "process 7, rank 1, state T, 0.10 processors, waits in x: a\nprocess 8, rank 2, state S, 0.10 processors\n",
      "Thread 1 (LWP 7):\n#0  0x00007f in cudaStreamSynchronize () from libcudart.so\n"};
}

std::vector<std::string> progress_seeds() {
  return {
      "{\"schema\":1,\"phase\":\"trains\",\"job_id\":7,\"written_s\":1790000000,\"deadline_s\":60,\"progress_age_s\":"
      "90,"
      "\"slow\":{\"text\":\"x\"},\"ranks\":[{\"rank\":0,\"node\":\"n0\",\"step\":7,\"section\":\"data\",\"section_s\":"
      "90,"
      "\"alive\":true},{\"rank\":1,\"node\":\"n0\",\"step\":7,\"section\":\"\",\"section_s\":90,\"alive\":false}]}",
      "{\"header\":{\"id\":\"0x1\",\"rank\":3,\"n_ranks\":4,\"nnodes\":2},\"metadata\":{\"inspector_output_format_"
      "version\":"
      "\"v4.0\",\"dump_timestamp_us\":1790000000000000,\"hostname\":\"n1\",\"pid\":7},\"coll_perf\":{\"coll_sn\":1}}"
      "\n"};
}

const Target kTargets[] = {
    {"trace_ms", ours, our_seeds, {"MSTRACE\n", "0-63:8", "\xff\xff\xff\xff"}},
    {"trace_chrome",
     foreign,
     chrome_seeds,
     {"\"traceEvents\":", "\"ph\":\"X\"", "\"ts\":", "\"dur\":", "\"args\":", "1e300",
      "\"distributedInfo\":", "\"pg_config\":", "\"cat\":\"kernel\"", "\"step\":"}},
    {"trace_flight",
     foreign,
     flight_seeds,
     {"\"entries\":", "\"pg_config\":", "\"collective_seq_id\":", "\"input_sizes\":", "\"state\":", "\"completed\"",
      "9223372036854775807"}},
    {"trace_pickle",
     foreign,
     pickle_seeds,
     {"\x8c", "\x94", "\x86", "\x85", "K", "M", "J", "\x8a", "(", "u", "e", "a", "h", "."}},
    {"trace_nsys",
     foreign,
     nsys_seeds,
     {"\"CudaEvent\":", "\"NvtxEvent\":", "\"startNs\":", "\"Text\":", "\"data\":", "iteration 3",
      "-9223372036854775808"}},
    {"trace_watchdog",
     foreign,
     watchdog_seeds,
     {"SeqNum=", "OpType=", "[rank", "[PG ", "GUID ", " Rank ", "last enqueued ", "last completed ",
      "work: ", "(default_pg)", "9223372036854775807"}},
    {"trace_ras",
     foreign,
     ras_seeds,
     {" ranks have ", "Rank ", " -- GPU ", "managed by process ", "on node ", "launched up to operation ", "DEAD",
      "MISMATCH", "\"missing_ranks\":", "\"collective_counts\":", "\"rank\":", "9223372036854775807"}},
    {"trace_progress",
     foreign,
     progress_seeds,
     {"\"phase\":", "\"trains\"", "\"written_s\":", "\"progress_age_s\":", "\"alive\":", "\"ranks\":", "\"header\":",
      "\"metadata\":", "\"dump_timestamp_us\":", "\"coll_perf\":", "1e308", "9223372036854775807"}},
    {"trace_stacks",
     foreign,
     stack_seeds,
     {"Process ", "Thread ", "(idle): \"MainThread\"", ", rank ", ", state ", "(most recent call first)", "File \"",
      "\", line ", "#0  0x", " in "}},
};

}  // namespace

std::span<const Target> trace_targets() { return kTargets; }

}  // namespace ms::fuzz

// Exports of Nsight Systems as JSON lines, and files that only look like exports. tests/pytorch/nsys_exports.py
// compares whole reports, also of SQLite.
#include "tracepp/read/nsys_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "foreign_files.h"
#include "tracepp/steps/idle_causes.h"

namespace ms::tracepp {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr std::int64_t kPid = 0x1000000;

std::string kernel(std::int64_t begin, std::int64_t end, int correlation, std::int64_t pid, int device = 0) {
  return fmt::format(R"({{"Type":79,"CudaEvent":{{"startNs":"{}","endNs":"{}","correlationId":{},"deviceId":{},)"
                     R"("streamId":"7","globalPid":"{}","kernel":{{"demangledName":"1","shortName":"0"}}}}}})"
                     "\n",
                     begin, end, correlation, device, pid);
}
std::string launch(std::int64_t begin, std::int64_t end, int correlation, std::int64_t tid) {
  return fmt::format(R"({{"Type":48,"TraceProcessEvent":{{"startNs":"{}","endNs":"{}","correlationId":{},"name":"2",)"
                     R"("globalTid":"{}"}}}})"
                     "\n",
                     begin, end, correlation, tid);
}
std::string range(std::string_view text, std::int64_t begin, std::int64_t end, std::int64_t tid) {
  return fmt::format(R"({{"Type":59,"NvtxEvent":{{"Type":59,"Timestamp":"{}","Text":"{}","GlobalTid":"{}",)"
                     R"("EndTimestamp":"{}"}}}})"
                     "\n",
                     begin, text, tid, end);
}
constexpr std::string_view kStrings = R"({"data":["[Unknown]","ampere_gemm","cudaLaunchKernel_v7000"]})";

std::string job(std::int64_t pid, int device = 0) {
  const std::int64_t tid = pid + 5;
  return range("iteration 1", 0, 1'000'000, tid) + range("optimizer step 7", 500'000, 600'000, tid) +
         range("optimizer step 8", 1'500'000, 1'600'000, tid) + range("iteration 2", 1'000'000, 2'000'000, tid) +
         range("log \\\"x\\\"", 205'000, 690'000, tid) + launch(0, 5000, 1, tid) +
         kernel(10'000, 200'000, 1, pid, device) + launch(700'000, 705'000, 2, tid) +
         kernel(720'000, 1'500'000, 2, pid, device);
}

RunTrace read_export(const std::string& name, const std::string& text) {
  const ForeignFiles files;
  return read_run({files.put(name, text)});
}

void expect_job(const RunTrace& trace) {
  EXPECT_EQ(trace.source, &kNsight);
  ASSERT_THAT(trace.ranks, SizeIs(1));
  EXPECT_EQ(trace.ranks[0].rank, 3);
  EXPECT_THAT(trace.ranks[0].launches, SizeIs(2));
  const RankIdle idle = idle_causes(trace).at(0);
  ASSERT_THAT(idle.steps, SizeIs(2));
  EXPECT_EQ(idle.steps[0].step, 1);
  EXPECT_EQ(idle.steps[1].step, 2);
  EXPECT_EQ(idle.of(IdleCause::late), 500'000) << "from the end of a kernel to the launch of the next one";
  EXPECT_EQ(idle.of(IdleCause::launch), 20'000 + 10'000);
  const auto late =
      std::ranges::find(idle.places, IdleCause::late, [](const IdleTime& time) { return time.place.cause; });
  ASSERT_NE(late, idle.places.end());
  EXPECT_EQ(trace.strings.text(late->place.below), "log \"x\"");
  for (const Event& event : trace.ranks[0].events) {
    const EventInfo& info = trace.info(event);
    EXPECT_EQ(info.kind == Kind::matmul, info.origin == Origin::kernel);
    EXPECT_EQ(trace.strings.text(info.name) == "cudaLaunchKernel", info.origin == Origin::call);
  }
}

TEST(NsysReader, StringsStandBeforeOrBehindTheEvents) {
  expect_job(read_export("rank3.jsonl", std::string(kStrings) + "\n" + job(kPid)));
  expect_job(read_export("rank3.jsonl", job(kPid) + std::string(kStrings)));
  expect_job(read_export("rank3.jsonl", job(kPid) + R"({"type":"String","id":"1","value":"ampere_gemm"})" +
                                            R"({"type":"String","id":"2","value":"cudaLaunchKernel_v7000"})"));
}

TEST(NsysReader, EachProcessWithADeviceIsARank) {
  const RunTrace trace = read_export(
      "rank3.jsonl", job(2 * kPid, 1) + job(3 * kPid, 0) + launch(0, 1, 9, 4 * kPid) + std::string(kStrings));
  ASSERT_THAT(trace.ranks, SizeIs(2));
  EXPECT_EQ(trace.ranks[0].numbered, ms::tracepp::Numbered::made_up) << "the file's name tells one process at most";
  EXPECT_EQ(trace.problems.at("event of a process without work on a device"), 1U);
}

TEST(NsysReader, HostileLinesAreCounted) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const RunTrace trace =
      read_export("rank0.jsonl", job(kPid) + kernel(huge - 1, huge, 3, kPid) + kernel(-huge, huge, 4, kPid) +
                                     kernel(9, 5, 5, kPid) + "[1,2]\n" +
                                     R"({"CudaEvent":7}{"NvtxEvent":{"Text":{"a":[]}}}{"data":7})" + "\n" +
                                     range("step 99999999999", 1, 2, kPid) + R"({"CudaEvent":{"startNs":")");
  EXPECT_EQ(trace.problems.at("time that is no number"), 2U);
  EXPECT_EQ(trace.problems.at("negative duration"), 1U);
  EXPECT_EQ(trace.problems.at("file is cut off"), 1U);
  EXPECT_EQ(trace.event_count(), 10U);
}

TEST(NsysReader, WhatIsNoExportIsRefused) {
  const ForeignFiles files;
  for (const std::string& file :
       {files.put("a.sqlite", std::string("SQLite format 3\0", 16) + std::string(600, 'x')),
        files.put("a.nsys-rep", "\x7fnsys"), files.put("a.jsonl", range("step 1", 0, 9, kPid))}) {
    EXPECT_THROW(read_run({file}), Error) << file;
  }
}

TEST(NsysReader, CopiesAreNamedAsKinetoDoes) {
  EXPECT_EQ(nsys_copy_name(1, 0, 2), "Memcpy HtoD (Pageable -> Device)");
  EXPECT_EQ(nsys_copy_name(-1, 99, 1), "Memcpy Unknown (Unknown -> Pinned)");
}

}  // namespace
}  // namespace ms::tracepp

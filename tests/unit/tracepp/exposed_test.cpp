#include "tracepp/steps/exposed.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "kineto_job.h"
#include "tracepp/report/json.h"

namespace ms::tracepp {
namespace {

using ::testing::SizeIs;

TEST(ExposedCommunication, IsWhatNoComputingHides) {
  const RunTrace trace = read_jobs({KinetoJob(0, 2)
                                        .step(1, 0, 1000)
                                        .launched(0, 10, 400, 1)
                                        .launched(20, 450, 600, 2)
                                        .all_reduce(30, 300, 500, 3, 0)
                                        .all_reduce(40, 550, 900, 4, 1)
                                        .call("cudaLaunchKernelExC", 45, 46, 5)
                                        .kernel("ncclDevKernel_AllGather_RING_LL", 0, 10, 5, 23)});
  const std::vector<ExposedComm> exposed = exposed_communication(trace);
  ASSERT_THAT(exposed, SizeIs(2));
  EXPECT_EQ(exposed[0].kind, Kind::all_reduce);
  EXPECT_EQ(exposed[0].operations, 2U);
  EXPECT_EQ(exposed[0].total_ns, 550'000);
  EXPECT_EQ(exposed[0].exposed_ns, 550'000 - 100'000 - 50'000 - 50'000);
  EXPECT_EQ(exposed[1].kind, Kind::all_gather);
  EXPECT_EQ(exposed[1].group, -1);
  EXPECT_EQ(exposed[1].exposed_ns, 10'000);
  const auto json = nlohmann::json::parse(dump(exposed_json(trace, exposed)));
  EXPECT_EQ(json[0]["exposed_ms"], 0.35);
  EXPECT_EQ(json[1]["group"], nullptr);
}

}  // namespace
}  // namespace ms::tracepp

// What ms-tracepp hang shows of the evidence that a run left.
#include "tracepp/report/stacks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/files.h"

namespace ms::tracepp {
namespace {

TEST(SuspectStacks, ShowTheGpusOfTheSuspectsNodeOnce) {
  const test::TempDir run;
  const std::string evidence = run.path() + "/evidence/15a8";
  std::filesystem::create_directories(evidence);
  std::ofstream(evidence + "/devices-n1.txt") << "host: load 1.5\n"
                                                 "gpu0: lost 0, temperature_c 91, pcie_width 16, last_xid 79\n"
                                                 "gpu1: \033[1m, temperature_c \033[2m\n"
                                                 "not read: log: permission denied\n"
                                                 "gpu2 without a colon\n";
  std::ofstream(evidence + "/devices-n2.txt") << "gpu0: temperature_c 35\n";
  Hang hang;
  for (const char* host : {"n1", "n1", "../n2"}) hang.suspects.emplace_back().host = host;
  const std::string text = suspect_stacks({run.path() + "/trace"}, hang);
  EXPECT_EQ(text, "  what the devices of its node said is in " + evidence +
                      "/devices-n1.txt\n"
                      "    gpu0: lost 0, temperature_c 91, last_xid 79\n"
                      "    gpu1: temperature_c ?[2m\n"
                      "    not read: log: permission denied\n");
  hang.suspects = {HangSuspect()};
  hang.suspects[0].host = "n3";
  EXPECT_EQ(suspect_stacks({run.path() + "/trace"}, hang), "") << "nothing of it was left";
}

}  // namespace
}  // namespace ms::tracepp

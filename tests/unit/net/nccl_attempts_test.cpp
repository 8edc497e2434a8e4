// Several attempts of a job in one NCCL log: the last is judged, those before are named.
#include "net/measure/nccl_attempts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <sstream>

#include "net/judge/nccl_choices.h"
#include "net/measure/nccl_log.h"

namespace ms::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Process {
  std::string host;
  int pid = 0;
  std::string gpu, comm;
  std::string network = "IB";
};

std::string line(const Process& it, const std::string& text) {
  return fmt::format("{0}:{1}:{1} [0] NCCL INFO {2}\n", it.host, it.pid, text);
}
std::string begins(const Process& it) { return line(it, "Bootstrap : Using eth0:10.0.0.1<0>"); }
std::string opens(const Process& it) {
  return line(it, "Using network " + it.network) +
         line(it, fmt::format("comm 0x5 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId {} commId {} - Init START", it.gpu,
                              it.comm));
}
std::string whole(const Process& it) { return begins(it) + opens(it); }

NcclLog read(const std::vector<std::string>& logs) {
  NcclLog log;
  for (const std::string& text : logs) {
    std::istringstream in(text);
    log.find_attempts(in);
  }
  for (const std::string& text : logs) {
    std::istringstream in(text);
    log.read(in, "file");
  }
  return log;
}

std::vector<std::string> earlier(const NcclLog& log) {
  std::vector<std::string> found;
  for (const NcclAttempt& it : log.earlier_attempts())
    found.push_back(fmt::format("{} {}", it.processes, fmt::join(it.hosts, ",")));
  return found;
}

const Process kOld1{"n1", 10, "1000", "0xa", "Socket"}, kOld2{"n2", 10, "1000", "0xa"};
const Process kNew1{"n1", 20, "1000", "0xb"}, kNew2{"n2", 20, "1000", "0xb"}, kNew3{"n3", 20, "1000", "0xb"};

TEST(NcclAttempts, OfARestartTheLastAttemptIsJudged) {
  const NcclLog log = read({whole(kOld1) + whole(kOld2) + "slurmstepd: restart\n" + whole(kNew1) + whole(kNew2)});
  EXPECT_THAT(earlier(log), ElementsAre("2 n1,n2"));
  EXPECT_THAT(log.hosts().at("n1").networks, ElementsAre("IB"));
  EXPECT_THAT(log.hosts().at("n1").processes, ElementsAre(20));
  EXPECT_THAT(judge_nccl(log).findings, IsEmpty());
  EXPECT_THAT(judge_nccl(log).not_run, testing::Contains(HasSubstr("2 processes on n[1-2]")));
}

TEST(NcclAttempts, OneThatFoundNoPlaceInTheLastAttemptIsLeftOut) {
  // n2 was replaced by n3; lines of both attempts' hosts are mixed; a process of the first opened no communicator.
  const Process early{"n4", 10, "", ""};
  const NcclLog log = read({begins(early) + begins(kOld2) + whole(kOld1) + opens(kOld2) + begins(kNew3) +
                            begins(kNew1) + opens(kNew3) + opens(kNew1)});
  EXPECT_THAT(earlier(log), ElementsAre("2 n1,n2"));
  std::vector<std::string> hosts;
  for (const auto& [name, host] : log.hosts()) hosts.push_back(name);
  EXPECT_THAT(hosts, ElementsAre("n1", "n3"));
}

TEST(NcclAttempts, ProcessesOfOneNumberAreTold) {
  Process again = kNew1;
  again.pid = kOld1.pid;  // as in containers
  Process third = again;
  third.comm = "0xc";
  const NcclLog log = read({whole(kOld1) + whole(again) + whole(third)});
  EXPECT_THAT(earlier(log), ElementsAre("1 n1", "1 n1"));
  EXPECT_THAT(log.hosts().at("n1").networks, ElementsAre("IB"));
}

TEST(NcclAttempts, WhatIsNoRestartIsOneAttempt) {
  Process other_gpu = kOld1, shares = kNew1;
  other_gpu.pid = 11;
  other_gpu.gpu = "2000";
  shares.comm = kOld1.comm;
  struct Row {
    const char* what;
    std::vector<std::string> logs;
  };
  for (const Row& row : {
           Row{"logs of processes, one after the other", {whole(kOld1) + whole(other_gpu) + whole(kOld2)}},
           Row{"both write to the end", {whole(kOld1) + whole(kNew1) + line(kOld1, "Connected all rings")}},
           Row{"one communicator", {whole(kOld1) + whole(shares)}},
           Row{"several communicators of a process", {whole(kOld1) + opens(kOld1) + opens(kOld1)}},
           Row{"two logs, of which nothing tells the order", {whole(kOld1), whole(kNew1)}},
           Row{"a topology beside the log", {"<system version=\"1\"></system>", whole(kOld1)}},
           Row{"nothing", {""}},
       }) {
    const NcclLog log = read(row.logs);
    EXPECT_THAT(earlier(log), IsEmpty()) << row.what;
    EXPECT_THAT(judge_nccl(log).not_run, Not(testing::Contains(HasSubstr("earlier attempt")))) << row.what;
  }
}

}  // namespace
}  // namespace ms::net

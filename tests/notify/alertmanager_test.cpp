// notify, as an unprivileged user, with a real Alertmanager and a Slack that is ours: drains raise alerts, undrains
// resolve them, and what cannot be sent is not lost.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "health/act/spool.h"
#include "http_server.h"
#include "notify/notify.h"
#include "support/fork.h"

namespace ms::notify {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kProgram = "/usr/bin/prometheus-alertmanager";
constexpr uid_t kNobody = 65534;

double now_wall_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class F>
bool wait_for(double patience_s, F&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_s);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::usleep(50'000);
  }
  return true;
}

class Alertmanager {
 public:
  Alertmanager(int port, std::string directory) : port_(port), directory_(std::move(directory)) {
    std::ofstream(directory_ + "/am.yml") << "route:\n  receiver: nobody\nreceivers:\n  - name: nobody\n";
    const std::string config = "--config.file=" + directory_ + "/am.yml",
                      storage = "--storage.path=" + directory_ + "/am",
                      address = "--web.listen-address=127.0.0.1:" + std::to_string(port), log = directory_ + "/am.log";
    process_ = test::fork_or_throw();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      ::dup2(out, 1);
      ::dup2(out, 2);
      ::execl(kProgram, kProgram, config.c_str(), storage.c_str(), address.c_str(),
              "--cluster.listen-address=", nullptr);
      ::_exit(127);
    }
  }
  ~Alertmanager() {
    ::kill(process_, SIGTERM);
    if (!wait_for(5, [&] { return ::waitpid(process_, nullptr, WNOHANG) == process_; })) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
  }
  Alertmanager(const Alertmanager&) = delete;
  Alertmanager& operator=(const Alertmanager&) = delete;

  bool is_ready() const {
    return wait_for(30, [&] { return support::http_get(port_, "/-/ready").starts_with("OK"); });
  }
  // The alerts that fire, "CODE NODE" each.
  std::set<std::string> firing() const {
    std::set<std::string> names;
    for (const Json& alert : alerts()) {
      names.insert(alert["labels"].value("alertname", "") + " " + alert["labels"].value("node", ""));
    }
    return names;
  }
  Json alerts() const { return Json::parse(support::http_get(port_, "/api/v2/alerts?active=true"), nullptr, false); }

 private:
  int port_;
  std::string directory_;
  pid_t process_ = -1;
};

class Notify : public ::testing::Test {
 protected:
  Notify() {
    std::string pattern = ::testing::TempDir() + "notify.XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    ::chmod(directory_.c_str(), 0755);
    std::filesystem::create_directory(directory_ + "/state");
    if (::getuid() == 0 && ::chown((directory_ + "/state").c_str(), kNobody, kNobody) != 0) ADD_FAILURE() << "chown";
    port_ = support::free_port();
    std::ofstream(directory_ + "/notify.toml")
        << "[notify]\nspool = '" << directory_ << "/spool'\nstate = '" << directory_
        << "/state'\nalertmanager = 'http://127.0.0.1:" << port_ << "'\nslack = '" << slack_.url()
        << "/services/T0/B0/secret'\nretries = 1\nbackoff = '10ms'\ntimeout = '5s'\n";
  }
  ~Notify() override { std::filesystem::remove_all(directory_); }

  void spool(const std::string& kind, const std::string& node, const std::string& message,
             std::uint32_t job = 0) const {
    health::spool_event(
        directory_ + "/spool",
        {.wall_s = now_wall_s(), .kind = kind, .node = node, .code = "gpu.ecc", .message = message, .job_id = job});
  }
  // notify --once in a process of its own, as nobody where we are root. 100: it threw.
  int notify_once(const std::string& run = "") const {
    const pid_t process = ::fork();
    if (process == 0) {
      if (::getuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(101);
      try {
        ::_exit(notify({.config = directory_ + "/notify.toml", .run = run, .once = true}));
      } catch (const Error& error) {
        std::fprintf(stderr, "notify: %s\n", error.what());
        ::_exit(100);
      }
    }
    int status = 0;
    ::waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string directory_;
  int port_ = 0;
  support::HttpServer slack_;
};

TEST_F(Notify, TellsAlertmanagerAndSlack) {
  if (::access(kProgram, X_OK) != 0) GTEST_SKIP() << kProgram << " is not installed";
  const Alertmanager alertmanager(port_, directory_);
  ASSERT_TRUE(alertmanager.is_ready());

  EXPECT_EQ(notify_once(), 0);  // there is no spool yet
  EXPECT_TRUE(slack_.requests().empty());

  spool("drain", "node02", "gpu 3: 4 uncorrectable errors, \"quoted\" <!channel>", 123);
  spool("strike", "node02", "the second time");
  spool("drain", "node03", "gpu 1: gone");
  EXPECT_EQ(notify_once(), 0);
  EXPECT_EQ(alertmanager.firing(),
            (std::set<std::string>{"MsDiagDrained node02", "MsDiagStrike node02", "MsDiagDrained node03"}));
  const Json alerts = alertmanager.alerts();
  const auto drained = std::find_if(alerts.begin(), alerts.end(),
                                    [](const Json& alert) { return alert["labels"].value("job", "") == "123"; });
  ASSERT_NE(drained, alerts.end());
  EXPECT_EQ((*drained)["labels"], Json::parse(R"({"alertname":"MsDiagDrained","code":"gpu.ecc","node":"node02",
                                                 "severity":"critical","job":"123"})"));
  EXPECT_EQ((*drained)["annotations"]["description"], "gpu 3: 4 uncorrectable errors, \"quoted\" <!channel>");

  ASSERT_EQ(slack_.requests().size(), 1U);
  const std::string request = slack_.requests()[0];
  EXPECT_TRUE(request.starts_with("POST /services/T0/B0/secret HTTP/1.1\r\n")) << request;
  const std::string text = Json::parse(request.substr(request.find("\r\n\r\n") + 4))["text"];
  EXPECT_THAT(text, HasSubstr("*critical* node02 was drained: gpu.ecc (job 123) - gpu 3: 4 uncorrectable errors, "
                              "\"quoted\" &lt;!channel&gt; ["));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);

  EXPECT_EQ(notify_once(), 0);  // nothing is new
  EXPECT_EQ(slack_.requests().size(), 1U);

  spool("undrain", "node02", "verified");
  EXPECT_EQ(notify_once(), 0);
  EXPECT_EQ(alertmanager.firing(), (std::set<std::string>{"MsDiagStrike node02", "MsDiagDrained node03"}));
  EXPECT_EQ(slack_.requests().size(), 2U);
}

TEST_F(Notify, LosesNothingWhileNobodyAnswers) {
  if (::access(kProgram, X_OK) != 0) GTEST_SKIP() << kProgram << " is not installed";
  spool("drain", "node02", "gpu 3: gone");
  slack_.answer_with(support::http_answer(500));
  EXPECT_EQ(notify_once(), 1);
  EXPECT_EQ(slack_.requests().size(), 2U);  // once repeated
  spool("drain", "node03", "gpu 4: gone");
  const Alertmanager alertmanager(port_, directory_);
  ASSERT_TRUE(alertmanager.is_ready());
  EXPECT_EQ(notify_once(), 1);  // Slack still does not
  EXPECT_EQ(alertmanager.firing(), (std::set<std::string>{"MsDiagDrained node02", "MsDiagDrained node03"}));
  slack_.answer_with(support::http_answer(200));
  EXPECT_EQ(notify_once(), 0);
  EXPECT_THAT(slack_.requests().back(), HasSubstr("node03"));
  EXPECT_EQ(notify_once(), 0);
  EXPECT_EQ(slack_.requests().size(), 5U);
}

TEST_F(Notify, TellsOfADrivenRun) {
  if (::access(kProgram, X_OK) != 0) GTEST_SKIP() << kProgram << " is not installed";
  const Alertmanager alertmanager(port_, directory_);
  ASSERT_TRUE(alertmanager.is_ready());
  spool("drain", "node05", "of this node, which is another matter");
  const std::string driver = directory_ + "/run/driver";
  EXPECT_EQ(notify_once(directory_ + "/run"), 100) << "no driver was there";
  std::filesystem::create_directories(driver + "/notified");
  if (::getuid() == 0 && ::chown((driver + "/notified").c_str(), kNobody, kNobody) != 0) ADD_FAILURE() << "chown";
  health::spool_event(driver + "/events", {.wall_s = now_wall_s(),
                                           .kind = "run-interrupted",
                                           .node = "node[02-03]",
                                           .code = "hang",
                                           .message = "node[02-03] never entered all_reduce 7",
                                           .job_id = 77});
  health::spool_event(driver + "/events", {.wall_s = now_wall_s(),
                                           .kind = "run-failed",
                                           .node = "",
                                           .code = "code 93",
                                           .message = "3 attempts came no further",
                                           .job_id = 77});
  EXPECT_EQ(notify_once(directory_ + "/run"), 0);
  EXPECT_EQ(alertmanager.firing(), (std::set<std::string>{"MsRunInterrupted node[02-03]", "MsRunFailed "}));
  ASSERT_EQ(slack_.requests().size(), 1U);
  EXPECT_THAT(slack_.requests()[0],
              HasSubstr("*warning* run interrupted: hang (job 77) - node[02-03] never entered all_reduce 7 ["));
  EXPECT_THAT(slack_.requests()[0], HasSubstr("*critical* run ended: code 93 (job 77) - 3 attempts came no further ["));
}

TEST_F(Notify, RelaysForNodesWithoutAWayOut) {
  const std::string relay = directory_ + "/relay", settings = "[notify]\nspool = '" + directory_ + "/spool'\n";
  std::filesystem::create_directory(relay);
  std::filesystem::create_directory(directory_ + "/login");
  for (const std::string& path : {relay, directory_ + "/login"})
    if (::getuid() == 0 && ::chown(path.c_str(), kNobody, kNobody) != 0) ADD_FAILURE() << "chown";
  const auto node = [&] {
    std::ofstream(directory_ + "/notify.toml")
        << settings << "state = '" << directory_ << "/state'\nrelay_to = '" << relay << "'\n";
    return notify_once();
  };
  const auto login = [&] {
    std::ofstream(directory_ + "/notify.toml")
        << "[notify]\nspool = '" << directory_ << "/none'\nstate = '" << directory_ << "/login'\nrelay_from = '"
        << relay << "'\nslack = '" << slack_.url() << "/'\nretries = 0\ntimeout = '5s'\n";
    return notify_once();
  };
  const auto left = [&] {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(relay))
      files += entry.path().extension() == ".json" ? 1 : 0;
    return files;
  };
  EXPECT_EQ(login(), 0);
  spool("drain", "node02", "gpu 3: gone");
  spool("undrain", "node02", "verified");
  EXPECT_EQ(node(), 0);
  EXPECT_TRUE(slack_.requests().empty());
  EXPECT_EQ(left(), 2U);
  slack_.answer_with(support::http_answer(500));
  EXPECT_EQ(login(), 1);
  EXPECT_EQ(left(), 2U) << "what Slack does not know stays";
  slack_.answer_with(support::http_answer(200));
  // A folder of somebody else's keeps no other from being read.
  std::filesystem::create_directory(relay + "/aaa");
  std::filesystem::permissions(relay + "/aaa", std::filesystem::perms::all);
  EXPECT_EQ(login(), 0);
  EXPECT_THAT(slack_.requests().back(), HasSubstr("*critical* node02 was drained: gpu.ecc - gpu 3: gone"));
  EXPECT_EQ(left(), 0U);
  EXPECT_EQ(node(), 0) << "what is sent is not left again";
  EXPECT_EQ(left(), 0U);
  EXPECT_EQ(login(), 0);
  EXPECT_EQ(slack_.requests().size(), 2U);
  std::filesystem::remove_all(relay);
  EXPECT_EQ(login(), 100) << "a relay that is gone is no empty one";
  spool("drain", "node02", "gpu 3: gone again");
  EXPECT_EQ(node(), 1);
}

TEST_F(Notify, RunsOnce) {
  const int lock = ::open((directory_ + "/state/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(::fchmod(lock, 0666), 0);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  EXPECT_EQ(notify_once(), 100);
  ::close(lock);
}

// Whoever may change a link could lead the notifier to files of others.
TEST_F(Notify, ItsStateIsNoLinkAndItsOwn) {
  spool("drain", "node02", "gpu 3: gone");
  std::filesystem::rename(directory_ + "/state", directory_ + "/elsewhere");
  std::filesystem::create_directory_symlink(directory_ + "/elsewhere", directory_ + "/state");
  EXPECT_EQ(notify_once(), 100);
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/elsewhere"));
  if (::getuid() == 0) {
    std::filesystem::remove(directory_ + "/state");
    std::filesystem::create_directory(directory_ + "/state");
    ASSERT_EQ(::chmod((directory_ + "/state").c_str(), 0777), 0);
    EXPECT_EQ(notify_once(), 100);  // root's, writable for all
  }
  EXPECT_TRUE(slack_.requests().empty());
}

TEST_F(Notify, NeverRunsAsRoot) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can try";
  spool("drain", "node02", "gpu 3: gone");
  EXPECT_THROW(notify({.config = directory_ + "/notify.toml", .once = true}), Error);
  EXPECT_TRUE(slack_.requests().empty());
}

TEST_F(Notify, DoesNotReadWhatOthersCouldWrite) {
  spool("drain", "node02", "gpu 3: gone");
  ASSERT_EQ(::chmod((directory_ + "/spool").c_str(), 0777), 0);
  EXPECT_EQ(notify_once(), 100);
  EXPECT_TRUE(slack_.requests().empty());
}

}  // namespace
}  // namespace ms::notify

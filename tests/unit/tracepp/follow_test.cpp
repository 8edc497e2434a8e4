#include "tracepp/page/follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/json.h"
#include "tracepp/page/endpoint.h"
#include "tracepp/synthetic.h"
#include "tracepp/write_run.h"

namespace ms::tracepp {
namespace {

using testing::HasSubstr;
using testing::Not;

class Following : public testing::Test {
 protected:
  Following() : dir_(testing::TempDir() + "following." + std::to_string(getpid())) {
    std::filesystem::remove_all(dir_);
    write(6);
    run_.begin([](const RunTrace&) {});
  }
  ~Following() override { std::filesystem::remove_all(dir_); }
  void write(int steps) {
    std::filesystem::create_directories(dir_);
    write_run(make_run({.mesh = {.dp = 2, .pp = 1, .tp = 1}, .steps = steps}), dir_);
    for (const auto& file : std::filesystem::directory_iterator(dir_))  // the clock of files is coarse
      std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() + std::chrono::hours(steps));
  }
  std::string version() { return state().get<std::string>("version"); }
  Json state() { return Json::parse(run_.state(), {.max_depth = 2}); }

  std::string dir_;
  FakeClock clock_;
  FollowedRun run_{{dir_}, {}, clock_};
};

TEST_F(Following, ReadsWhatHasGrown) {
  EXPECT_THAT(*run_.page(), HasSubstr("6 steps"));
  EXPECT_THAT(*run_.page(), HasSubstr("connect-src 'self';"));
  run_.refresh();
  EXPECT_EQ(version(), "1") << "nothing has grown";
  write(9);
  run_.refresh();
  EXPECT_EQ(version(), "1") << "it was looked at just now";
  clock_.advance_s(3);
  run_.refresh();
  EXPECT_EQ(version(), "2");
  EXPECT_THAT(*run_.page(), HasSubstr("9 steps"));
}

TEST_F(Following, ReadsNothingForNobody) {
  clock_.advance_s(60);
  write(9);
  run_.refresh();
  EXPECT_EQ(version(), "1");  // that was a visit
  run_.refresh();
  EXPECT_EQ(version(), "2");
}

TEST_F(Following, SaysWhatCannotBeRead) {
  std::filesystem::remove_all(dir_);
  clock_.advance_s(3);
  run_.refresh();
  EXPECT_THAT(state().get<std::string>("text"), HasSubstr("cannot be read now"));
  EXPECT_TRUE(state().get<bool>("bad"));
  EXPECT_THAT(*run_.page(), HasSubstr("6 steps"));
  write(9);
  clock_.advance_s(3);
  run_.refresh();
  EXPECT_THAT(state().get<std::string>("text"), Not(HasSubstr("cannot be read now")));
  EXPECT_THAT(*run_.page(), HasSubstr("9 steps"));
}

TEST(Site, LetsInWhoKnowsTheToken) {
  Site site(
      "5ecret", [] { return std::make_shared<const std::string>("the page"); }, [] { return "the state"; });
  const auto status = [&](const std::string& target, const std::string& host) {
    return site.answer({.method = "GET", .target = target, .host = host}).status.substr(0, 3);
  };
  for (const char* host : {"localhost", "localhost:8000", "127.0.0.1:1", "[::1]", "[::1]:8000"})
    EXPECT_EQ(status("/?token=5ecret", host), "200") << host;
  for (const char* host : {"", "evil.example", "localhost.evil.example:80", "127.0.0.1:80.evil.example", "127.0.0.2",
                           "10.0.0.1:8000", "[::2]", ":1"})
    EXPECT_EQ(status("/?token=5ecret", host), "403") << host;
  for (const char* target :
       {"/", "/?token=", "/?token=5ecre", "/?token=5ecrets", "/?token=5ecreT", "/?5ecret", "/state"})
    EXPECT_EQ(status(target, "localhost"), "403") << target;
  for (const char* target : {"", "/x?token=5ecret", "//?token=5ecret", "http://localhost/?token=5ecret"})
    EXPECT_EQ(status(target, "localhost"), "404") << target;
  EXPECT_EQ(*site.answer({.method = "GET", .target = "/state?token=5ecret", .host = "localhost"}).body, "the state");
}

TEST(Token, IsAnotherOneEachTime) {
  EXPECT_EQ(new_token().size(), 32U);
  EXPECT_NE(new_token(), new_token());
}

}  // namespace
}  // namespace ms::tracepp

#include "watch/beat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>

namespace ms::watch {
namespace {

using testing::Eq;
using testing::Optional;

TEST(Beat, SaysWhatItIsMadeOf) {
  const Beat beat{.rank = 3, .step = 17, .section = "save", .numbers = {{"loss", 2.5}, {"tokens_per_s", 1e6}}};
  EXPECT_EQ(format_beat(beat), "rank=3 step=17 section=save loss=2.5 tokens_per_s=1000000");
  const std::optional<Beat> parsed = parse_beat(format_beat(beat));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->rank, 3);
  EXPECT_EQ(parsed->step, 17);
  EXPECT_EQ(parsed->section, "save");
  EXPECT_EQ(parsed->numbers, beat.numbers);
}

TEST(Beat, MayLeaveOutWhatItDoesNotKnow) {
  const std::optional<Beat> parsed = parse_beat("step=0\n");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->rank, -1);
  EXPECT_EQ(parsed->step, 0);
  EXPECT_TRUE(parsed->section.empty());
}

TEST(Beat, IsNotAnyText) {
  for (const std::string text :
       {"", " ", "rank", "rank=", "rank=-1", "rank=x", "step=-3", "step=1.5", "section=", "section=Save", "section=a b",
        "Loss=1", "loss=", "loss=1x", "a\tb=1", "rank=99999999999"}) {
    EXPECT_FALSE(parse_beat(text)) << text;
  }
  EXPECT_FALSE(parse_beat(std::string(kMaxBeatBytes + 1, 'a')));
  std::string many;
  for (std::size_t i = 0; i <= kMaxBeatNumbers; ++i) many += fmt::format("n{}=1 ", i);
  EXPECT_FALSE(parse_beat(many));
}

class Socket {
 public:
  Socket() : path_(testing::TempDir() + "/beat"), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    unlink(path_.c_str());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  std::string receive() {
    std::array<char, 1024> text{};
    const ssize_t got = recv(fd_.get(), text.data(), text.size(), 0);
    return got < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(got));
  }
  const std::string& path() const { return path_; }
  void close() { fd_.reset(); }

 private:
  std::string path_;
  UniqueFd fd_;
};

TEST(Heartbeat, ArrivesAndNeverWaits) {
  Socket socket;
  const Heartbeat heartbeat(socket.path().c_str());
  heartbeat.send({.rank = 1, .step = 2, .section = "step", .numbers = {}});
  EXPECT_EQ(socket.receive(), "rank=1 step=2 section=step");
  for (int i = 0; i < 100000; ++i) heartbeat.send({.rank = 1, .step = i, .section = "step", .numbers = {}});
  socket.close();
  heartbeat.send({.rank = 1, .step = 3, .section = "step", .numbers = {}});  // nobody is there
}

TEST(Heartbeat, IsNotSentWhereNobodyAsked) {
  EXPECT_FALSE(Heartbeat(nullptr));
  EXPECT_FALSE(Heartbeat(""));
  EXPECT_FALSE(Heartbeat(std::string(200, 'x').c_str()));
}

}  // namespace
}  // namespace ms::watch

// http_post against a server that answers well, badly, slowly, or not at all.
#include "notify/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string_view>

#include "http_server.h"

namespace ms::notify {
namespace {

using support::Answer;
using support::http_answer;
using support::HttpServer;
using ::testing::HasSubstr;
using ::testing::Not;

class Http : public ::testing::Test {
 protected:
  HttpReply post(double timeout_s = 5) {
    const auto start = std::chrono::steady_clock::now();
    HttpReply reply = http_post({.url = server_.url() + "/path", .body = "{\"a\":\"b\"}", .timeout_s = timeout_s});
    elapsed_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return reply;
  }
  HttpServer server_;
  double elapsed_s_ = 0;
};

TEST_F(Http, SendsItAsItIs) {
  const HttpReply reply = post();
  EXPECT_EQ(reply.status, 200) << reply.problem;
  EXPECT_EQ(reply.body, "ok");
  ASSERT_EQ(server_.requests().size(), 1U);
  const std::string request = server_.requests()[0];
  EXPECT_TRUE(request.starts_with("POST /path HTTP/1.1\r\n")) << request;
  EXPECT_THAT(request, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(request, Not(HasSubstr("Expect")));
  EXPECT_TRUE(request.ends_with("\r\n\r\n{\"a\":\"b\"}")) << request;
}

TEST_F(Http, TellsWhatItWasAnswered) {
  for (const int status : {400, 429, 500, 503}) {
    server_.answer_with(http_answer(status, "because"));
    const HttpReply reply = post();
    EXPECT_EQ(reply.status, status);
    EXPECT_EQ(reply.body, "because");
  }
}

// Takes one mail as a server does that knows no other address than a@x, and refuses the sender `refused`.
std::string take_mail(int listener, const std::string& refused) {
  const int socket = ::accept(listener, nullptr, nullptr);
  FILE* const lines = ::fdopen(socket, "r+");
  const auto say = [&](const std::string& line) { ::send(socket, line.data(), line.size(), MSG_NOSIGNAL); };
  std::string data;
  std::array<char, 1000> line{};
  bool in_data = false;
  say("220 test\r\n");
  while (std::fgets(line.data(), line.size(), lines) != nullptr) {
    const std::string_view said = line.data();
    if (in_data) {
      if (said == ".\r\n")
        in_data = false, say("250 taken\r\n");
      else
        data += said;
    } else if (said.starts_with("DATA")) {
      in_data = true, say("354 go\r\n");
    } else if (said.starts_with("MAIL FROM:<" + refused + ">")) {
      say("550 no such sender\r\n");
    } else {
      say(said.starts_with("RCPT TO:") && !said.starts_with("RCPT TO:<a@x>") ? "550 who\r\n" : "250 ok\r\n");
    }
  }
  std::fclose(lines);
  return data;
}

TEST_F(Http, SendsAMail) {
  const auto [listener, port] = support::listen_somewhere();
  HttpRequest mail{.url = "smtp://127.0.0.1:" + std::to_string(port),
                   .body = "Subject: s\r\n\r\n.begins with a dot\r\nend\r\n",
                   .mail_to = {"gone@x", "a@x"},
                   .mail_from = "ms@x"};
  std::future<std::string> taken = std::async(std::launch::async, take_mail, listener, "nobody@x");
  const HttpReply reply = http_post(mail);
  EXPECT_EQ(reply.status, 200) << reply.problem << reply.body;
  EXPECT_EQ(taken.get(), "Subject: s\r\n\r\n..begins with a dot\r\nend\r\n") << "as SMTP sends such a line";

  taken = std::async(std::launch::async, take_mail, listener, "ms@x");
  const HttpReply refused = http_post(mail);
  EXPECT_EQ(refused.status, 422);
  EXPECT_THAT(refused.body, HasSubstr("550"));
  taken.get();
  ::close(listener);
  mail.timeout_s = 1;
  EXPECT_EQ(http_post(mail).status, 0);
  mail.url = "file:///etc/hostname";
  EXPECT_EQ(http_post(mail).status, 0);
}

TEST_F(Http, FollowsNobody) {
  server_.answer_with(http_answer(302, "", "Location: " + server_.url() + "/elsewhere\r\n"));
  EXPECT_EQ(post().status, 302);
  EXPECT_EQ(server_.requests().size(), 1U);
}

TEST_F(Http, DoesNotWaitLonger) {
  server_.answer_with({.bytes = http_answer(200).bytes, .before_s = 3});
  const HttpReply reply = post(0.3);
  EXPECT_EQ(reply.status, 0);
  EXPECT_THAT(reply.problem, HasSubstr("timed out"));
  EXPECT_LT(elapsed_s_, 2);
}

TEST_F(Http, ListensOnlySoLong) {
  server_.answer_with({.bytes = "HTTP/1.1 200 OK\r\n\r\n", .endless = true});
  const HttpReply reply = post(30);
  EXPECT_EQ(reply.status, 0);
  EXPECT_EQ(reply.problem, "its reply does not end");
  EXPECT_LT(elapsed_s_, 10);
}

TEST_F(Http, KeepsOnlyTheBeginning) {
  server_.answer_with(http_answer(200, std::string(100'000, 'y')));
  const HttpReply reply = post();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, std::string(4096, 'y'));
}

TEST_F(Http, GarbageIsNoAnswer) {
  for (const char* bytes : {"", "\x01\x02\xff rubbish\r\n\r\n", "HTTP/9.9 what\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nshort"}) {
    server_.answer_with({.bytes = bytes});
    const HttpReply reply = post();
    EXPECT_EQ(reply.status, 0) << bytes;
    EXPECT_NE(reply.problem, "") << bytes;
  }
}

TEST_F(Http, NobodyThere) {
  const HttpReply reply =
      http_post({.url = "http://127.0.0.1:" + std::to_string(support::free_port()), .body = "", .timeout_s = 5});
  EXPECT_EQ(reply.status, 0);
  EXPECT_THAT(reply.problem, HasSubstr("connect"));
}

TEST_F(Http, SpeaksNothingElse) {
  for (const char* url : {"file:///etc/hostname", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x"}) {
    const HttpReply reply = http_post({.url = url, .body = "", .timeout_s = 5});
    EXPECT_EQ(reply.status, 0) << url;
    EXPECT_THAT(reply.problem, HasSubstr("Protocol")) << url;
  }
}

TEST_F(Http, WantsACertificate) {
  const HttpReply reply =
      http_post({.url = "https://127.0.0.1:" + std::to_string(server_.port()) + "/", .body = "", .timeout_s = 5});
  EXPECT_EQ(reply.status, 0);
  EXPECT_NE(reply.problem, "");
}

TEST_F(Http, TheEnvironmentsProxyIsIgnored) {
  const std::string nowhere = "http://127.0.0.1:" + std::to_string(support::free_port());
  for (const char* name : {"http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"}) setenv(name, nowhere.c_str(), 1);
  const HttpReply reply = post();
  for (const char* name : {"http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"}) unsetenv(name);
  EXPECT_EQ(reply.status, 200) << reply.problem;
}

TEST_F(Http, TheGivenProxyIsUsedForAll) {
  setenv("no_proxy", "*", 1);
  const HttpReply reply =
      http_post({.url = "http://alerts.invalid/x", .body = "{}", .proxy = server_.url(), .timeout_s = 5});
  unsetenv("no_proxy");
  EXPECT_EQ(reply.status, 200) << reply.problem;
  ASSERT_EQ(server_.requests().size(), 1U);
  EXPECT_TRUE(server_.requests()[0].starts_with("POST http://alerts.invalid/x HTTP/1.1\r\n"));
}

}  // namespace
}  // namespace ms::notify

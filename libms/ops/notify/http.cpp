#include "notify/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/handle.h"

namespace ms::notify {
namespace {

constexpr std::size_t kKeptBytes = 4096;          // of a reply; for messages
constexpr std::size_t kMostReplyBytes = 1 << 20;  // of a reply; more is not listened to

struct EasyTraits {
  using Type = CURL*;
  static constexpr CURL* null() { return nullptr; }
  static void destroy(CURL* easy) noexcept { curl_easy_cleanup(easy); }
};
struct ListTraits {
  using Type = curl_slist*;
  static constexpr curl_slist* null() { return nullptr; }
  static void destroy(curl_slist* list) noexcept { curl_slist_free_all(list); }
};

template <class Value>
void set(CURL* easy, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(easy, option, value);
  MS_ASSERT(code == CURLE_OK, "curl option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
}

struct Received {
  std::string body;
  std::size_t total = 0;
};

std::size_t receive(char* data, std::size_t size, std::size_t count, void* user) {
  auto& received = *static_cast<Received*>(user);
  const std::size_t bytes = size * count;
  received.total += bytes;
  if (received.total > kMostReplyBytes) return 0;  // ends the transfer
  received.body.append(data, std::min(bytes, kKeptBytes - received.body.size()));
  return bytes;
}

std::size_t give(char* to, std::size_t size, std::size_t count, void* user) {
  auto& rest = *static_cast<std::string_view*>(user);
  const std::size_t bytes = rest.copy(to, size * count);
  rest.remove_prefix(bytes);
  return bytes;
}

void allow(CURL* handle, const char* names, long bits) {
#if LIBCURL_VERSION_NUM >= 0x075500
  static_cast<void>(bits);
  set(handle, CURLOPT_PROTOCOLS_STR, names);
#else
  static_cast<void>(names);
  set(handle, CURLOPT_PROTOCOLS, bits);
#endif
}

// SMTP counts the other way round: 4xx is for now, 5xx for good.
HttpReply mail_reply(CURLcode code, long status, const char* words) {
  if (code == CURLE_OK) return {.status = 200};
  if (status < 400) return {.problem = words};
  return {.status = status >= 500 ? 422 : 503, .body = fmt::format("SMTP {}: {}", status, words)};
}

}  // namespace

HttpReply http_post(const HttpRequest& request) {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  const Handle<EasyTraits> easy(kReady == CURLE_OK ? curl_easy_init() : nullptr);
  Handle<ListTraits> headers(curl_slist_append(nullptr, "Content-Type: application/json"));
  // Without "Expect: 100-continue", for which small servers make us wait.
  if (!easy || !headers || curl_slist_append(headers.get(), "Expect:") == nullptr) {
    return {.problem = "libcurl could not start"};
  }
  CURL* handle = easy.get();
  std::array<char, CURL_ERROR_SIZE> words{};
  Received received;
  set(handle, CURLOPT_ERRORBUFFER, words.data());
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_FOLLOWLOCATION, 0L);
  set(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  set(handle, CURLOPT_SSL_VERIFYHOST, 2L);
  set(handle, CURLOPT_PROXY, request.proxy.c_str());  // empty: none, also not the environment's
  set(handle, CURLOPT_NOPROXY, "");                   // the environment's no_proxy is ignored too
  set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout_s * 1000));
  set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout_s * 1000));
  set(handle, CURLOPT_URL, request.url.c_str());
  set(handle, CURLOPT_USERAGENT, "ms-diag");
  const bool is_mail = !request.mail_to.empty();
  Handle<ListTraits> recipients;
  std::string_view rest = request.body;
  if (is_mail) {
    allow(handle, "smtp,smtps", CURLPROTO_SMTP | CURLPROTO_SMTPS);
    for (const std::string& address : request.mail_to)
      recipients = Handle<ListTraits>(curl_slist_append(recipients.release(), address.c_str()));
    set(handle, CURLOPT_MAIL_FROM, request.mail_from.c_str());
    set(handle, CURLOPT_MAIL_RCPT, recipients.get());
    set(handle, CURLOPT_MAIL_RCPT_ALLLOWFAILS, 1L);  // one address that is gone keeps no other from being told
    set(handle, CURLOPT_UPLOAD, 1L);
    set(handle, CURLOPT_READFUNCTION, give);
    set(handle, CURLOPT_READDATA, &rest);
  } else {
    allow(handle, "http,https", CURLPROTO_HTTP | CURLPROTO_HTTPS);
    set(handle, CURLOPT_HTTPHEADER, headers.get());
    set(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  set(handle, CURLOPT_WRITEFUNCTION, receive);
  set(handle, CURLOPT_WRITEDATA, &received);

  const CURLcode code = curl_easy_perform(handle);
  if (received.total > kMostReplyBytes) return {.problem = "its reply does not end"};
  const char* const problem = words[0] != '\0' ? words.data() : curl_easy_strerror(code);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  if (is_mail) return mail_reply(code, status, problem);
  if (code != CURLE_OK) return {.problem = problem};
  return {.status = static_cast<int>(status), .body = std::move(received.body)};
}

}  // namespace ms::notify

// The only file that includes OpenSSL.
#include "link/secret.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

namespace ms::link {
namespace {

std::string hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Error wrong_secret(const Channel& channel) {
  return Error("net.secret", Blame::fabric, fmt::format("{} does not know the secret of this check", channel.peer()));
}

}  // namespace

std::string new_secret() {
  std::array<unsigned char, 32> bytes;
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) {
    throw Error("net.secret", Blame::node, "this machine gives no random numbers");
  }
  return hex(bytes);
}

std::string mac_of(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), digest.data(), &length);
  return hex(std::span(digest).first(length));
}

bool is_same_mac(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void greet(Channel& channel, std::string_view secret, std::string_view greeting, Deadline deadline) {
  const std::string theirs = channel.receive_line(deadline, kMaxGreeting);
  const std::string ours = new_secret();
  const std::string said = fmt::format("{} {} {}", theirs, ours, greeting);
  channel.send_line(fmt::format("{} {} {}", ours, mac_of(secret, "greet " + said), greeting), deadline);
  if (!is_same_mac(channel.receive_line(deadline, kMaxGreeting), mac_of(secret, "welcome " + said)))
    throw wrong_secret(channel);
}

std::string challenge(Channel& channel, Deadline deadline) {
  std::string ours = new_secret();
  channel.send_line(ours, deadline);
  return ours;
}

std::string admit(Channel& channel, std::string_view secret, std::string_view nonce, std::string_view line,
                  Deadline deadline) {
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) throw wrong_secret(channel);
  std::string greeting(line.substr(second + 1));
  const std::string said = fmt::format("{} {} {}", nonce, line.substr(0, first), greeting);
  if (!is_same_mac(line.substr(first + 1, second - first - 1), mac_of(secret, "greet " + said)))
    throw wrong_secret(channel);
  channel.send_line(mac_of(secret, "welcome " + said), deadline);
  return greeting;
}

}  // namespace ms::link

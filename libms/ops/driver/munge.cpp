#include <munge.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "driver/credential.h"

namespace ms::driver {
namespace {

class Munge final : public Credentials {
 public:
  explicit Munge(std::string socket) : socket_(std::move(socket)) {}

  std::string seal(const std::string& text) const override {
    char* credential = nullptr;
    const munge_ctx_t context = make_context();
    if (context == nullptr) throw Error("driver.munge", Blame::node, "MUNGE: no memory");
    // Nobody else on the cluster can read it, or show it as theirs.
    munge_ctx_set(context, MUNGE_OPT_UID_RESTRICTION, geteuid());
    const munge_err_t error = munge_encode(&credential, context, text.data(), static_cast<int>(text.size()));
    const char* said = munge_ctx_strerror(context);
    const std::string words = said != nullptr ? said : munge_strerror(error);
    munge_ctx_destroy(context);
    if (error != EMUNGE_SUCCESS) {
      throw Error("driver.munge", Blame::node, fmt::format("MUNGE makes no credential: {}", words),
                  "is munged running on this node? Try: munge -n");
    }
    std::string result = credential;
    std::free(credential);
    return result;
  }

  std::optional<std::string> open(const std::string& credential, std::string& why) const override {
    void* text = nullptr;
    int length = 0;
    uid_t user = 0;
    gid_t group = 0;
    const munge_ctx_t context = make_context();
    const munge_err_t error = munge_decode(credential.c_str(), context, &text, &length, &user, &group);
    std::optional<std::string> result;
    munge_ctx_destroy(context);
    if (error != EMUNGE_SUCCESS) {
      why = munge_strerror(error);
    } else if (user != geteuid()) {
      why = fmt::format("a credential of user {}", user);
    } else {
      result.emplace(static_cast<const char*>(text), static_cast<std::size_t>(length));
    }
    std::free(text);
    return result;
  }

 private:
  munge_ctx_t make_context() const {
    const munge_ctx_t context = munge_ctx_create();
    if (context != nullptr && !socket_.empty()) munge_ctx_set(context, MUNGE_OPT_SOCKET, socket_.c_str());
    return context;
  }
  std::string socket_;
};

}  // namespace

std::unique_ptr<Credentials> munge_credentials(const std::string& socket) { return std::make_unique<Munge>(socket); }

}  // namespace ms::driver

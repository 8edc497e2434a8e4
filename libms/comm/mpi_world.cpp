// Ranks as processes: the service thread that owns MPI, seen as a World.
#include "comm/mpi_world.h"

#include "comm/mpi_service.h"

namespace ms::comm {
namespace {

class MpiWorld final : public World {
 public:
  explicit MpiWorld(std::shared_ptr<MpiService> service)
      : service_(std::move(service)), store_(service_->rank(), service_->board(), [this](BoardStore::Values values) {
          service_->publish(std::move(values));
        }) {}
  ~MpiWorld() override { service_->leave(); }

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return service_->rank(); }
  int size() const override { return service_->size(); }
  int ranks_on_node() const override { return service_->ranks_on_node(); }
  Store& store() override { return store_; }
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override {
    return make_exchange_communicator(service_, group, stream);
  }
  void abort(const Error& cause) noexcept override {
    service_->abort(cause);
    service_->wait_until_told();
  }
  std::optional<Cause> cause() const override { return service_->cause().get(); }
  void close() override { service_->close(); }

 private:
  std::shared_ptr<MpiService> service_;
  BoardStore store_;
};

}  // namespace

bool mpi_built_in() { return true; }

std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds deadline) {
  return std::make_unique<MpiWorld>(MpiService::start(deadline));
}

}  // namespace ms::comm

/* Tagged messages of UCX. UCX_TLS chooses its transports. */
#include <ucp/api/ucp.h>

static ucp_worker_h worker;
static ucp_ep_h endpoint;
static void *requests[WINDOW];

static void must(const char *call, ucs_status_t status) {
  if (status != UCS_OK)
    die("%s: %s: %s", name, call, ucs_status_string(status));
}

static void wire_open(void) {
  ucp_config_t *config;
  ucp_context_h context;
  must("ucp_config_read", ucp_config_read(0, 0, &config));
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
  must("ucp_init", ucp_init(&params, config, &context));
  ucp_worker_params_t of_worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCS_THREAD_MODE_SINGLE};
  must("ucp_worker_create", ucp_worker_create(context, &of_worker, &worker));
  ucp_address_t *own;
  size_t length;
  must("ucp_worker_get_address", ucp_worker_get_address(worker, &own, &length));
  show_address(own, length);
  ucp_ep_params_t of_endpoint = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                 .address = other_address()};
  must("ucp_ep_create", ucp_ep_create(worker, &of_endpoint, &endpoint));
}

static void progress(void) { ucp_worker_progress(worker); }

static void post(int is_send, void *buffer, size_t size, int at) {
  ucp_request_param_t params = {0};
  void *request = is_send
                      ? ucp_tag_send_nbx(endpoint, buffer, size, 1, &params)
                      : ucp_tag_recv_nbx(worker, buffer, size, 1, UINT64_MAX, &params);
  if (UCS_PTR_IS_ERR(request))
    die("%s: %s: %s", name, is_send ? "send" : "receive",
        ucs_status_string(UCS_PTR_STATUS(request)));
  requests[at] = request;
}

static int is_done(int at) {
  if (!requests[at])
    return 1;
  ucs_status_t status = ucp_request_check_status(requests[at]);
  if (status == UCS_INPROGRESS)
    return 0;
  must("an operation", status);
  ucp_request_free(requests[at]);
  requests[at] = 0;
  return 1;
}

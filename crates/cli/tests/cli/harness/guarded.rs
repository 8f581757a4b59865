//! A cluster that requires authentication.

use serde_json::{Value, json};

use super::resp::{Client, address_of};
use super::{Cluster, Response};

/// A cluster that requires authentication.
pub struct Guarded {
    pub cluster: Cluster,
    /// A token of the principal `root`, which has the role `admin`.
    pub admin: String,
}

impl Guarded {
    pub fn start(nodes: u16) -> Guarded {
        Guarded::over(Cluster::start(nodes), nodes)
    }

    /// Requires authentication in a new cluster of so many nodes.
    pub fn over(cluster: Cluster, nodes: u16) -> Guarded {
        cluster.await_newest_version();
        let put = |path: &str, body: Value| {
            let answer = cluster.put(1, path, body.to_string().as_bytes());
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()
        };
        let refused = cluster.put(1, "/v1/auth", br#"{"required":true}"#);
        assert!(refused.is_problem("last-administrator"), "{}", refused.text());
        let change = put("/v1/auth/principals/root", json!({ "roles": ["admin"] }));
        let all: Vec<Value> = (1..=nodes).map(Value::from).collect();
        assert_eq!((&change["in_force"], &change["not_yet"]), (&json!(all), &json!([])));
        let issued = cluster.send(1, "POST /v1/auth/tokens", &[], br#"{"principal":"root"}"#);
        assert_eq!(issued.status, 201, "{}", issued.text());
        let admin = issued.json()["token"].as_str().expect("a token").to_owned();
        put("/v1/auth", json!({ "required": true }));
        let guarded = Guarded { cluster, admin };
        for node in guarded.nodes() {
            // Retried until the node has confirmed that its permissions are current.
            assert_eq!(guarded.send(node, "GET /v1/auth", &guarded.admin, b"").status, 200);
        }
        guarded
    }

    /// A request with a token.
    pub fn send(&self, node: usize, request: &str, token: &str, body: &[u8]) -> Response {
        self.cluster.send(node, request, &[&format!("Authorization: Bearer {token}")], body)
    }

    /// A request of the administrator, which is allowed.
    pub fn administer(&self, request: &str, body: &Value) -> Value {
        let answer = self.send(1, request, &self.admin, body.to_string().as_bytes());
        assert!([200, 201].contains(&answer.status), "{request}: {}", answer.text());
        answer.json()
    }

    /// A principal with these grants: its token, and the token's number.
    pub fn principal(&self, name: &str, grants: &[&str]) -> (String, String) {
        self.administer(&format!("PUT /v1/auth/roles/{name}"), &json!({ "grants": grants }));
        self.administer(&format!("PUT /v1/auth/principals/{name}"), &json!({ "roles": [name] }));
        let issued = self.administer("POST /v1/auth/tokens", &json!({ "principal": name }));
        let text = |member: &str| issued[member].as_str().expect("a text").to_owned();
        (text("token"), text("id"))
    }

    /// A token that was deleted.
    pub fn deleted_token(&self) -> String {
        let issued = self.administer("POST /v1/auth/tokens", &json!({ "principal": "root" }));
        let id = issued["id"].as_str().expect("a number");
        self.administer(&format!("DELETE /v1/auth/tokens/{id}"), &json!({}));
        issued["token"].as_str().expect("a token").to_owned()
    }

    pub fn nodes(&self) -> Vec<usize> {
        self.cluster.numbers()
    }

    /// A connection of the Redis protocol that has sent this token.
    pub fn redis_as(&self, node: usize, token: &str) -> Client {
        let mut client = self.redis(node);
        assert_eq!(client.ask(&format!("AUTH {token}")), "+OK");
        client
    }

    /// A connection of the Redis protocol.
    pub fn redis(&self, node: usize) -> Client {
        Client::connect(address_of(self.cluster.address(node))).expect("the node listens")
    }
}

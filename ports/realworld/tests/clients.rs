use futures_util::future::join_all;
use harness::{Postgres, Program, Service};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

harness::on_both!("realworld", a_blog_by_its_clients);

/// A reader or an author, with a connection of its own.
#[derive(Clone)]
struct User {
    client: Client,
    api: String,
    token: Option<String>,
}

impl User {
    fn nobody(service: &Service) -> Self {
        Self { client: Client::new(), api: service.url("/api"), token: None }
    }

    async fn registered(service: &Service, name: &str) -> Self {
        let mut user = Self::nobody(service);
        let body = json!({ "user": { "username": name, "email": email(name), "password": name } });
        let (status, answer) = user.send(Method::POST, "/users", body).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        user.token = Some(answer["user"]["token"].as_str().unwrap().into());
        user
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let mut request = self.client.request(method, format!("{}{path}", self.api));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Token {token}"));
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let (status, body) = (answer.status(), answer.text().await.unwrap());
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.send(Method::GET, path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        answer
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.send(Method::POST, path, body).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }

    async fn status(&self, method: Method, path: &str, body: Value) -> u16 {
        self.send(method, path, body).await.0.as_u16()
    }
}

fn email(name: &str) -> String {
    format!("{name}@example.com")
}

fn article(title: &str, tags: &[&str]) -> Value {
    json!({ "article": { "title": title, "description": "short", "body": "long", "tagList": tags } })
}

async fn a_blog_by_its_clients(program: Program) {
    let postgres = Postgres::start().await;
    let program = program.env("DATABASE_URL", postgres.url()).env("SECRET", "not told");
    let service = program.start().await;
    let nobody = User::nobody(&service);

    let ann = User::registered(&service, "ann").await;
    accounts(&nobody, &ann).await;

    // Readers at the same time: they follow, like and comment.
    let readers = (0..10).map(|n| format!("reader{n}"));
    let readers = readers.map(async |name| User::registered(&service, &name).await);
    let readers = join_all(readers).await;
    let path = "/articles/how-to-train";
    assert_eq!(
        ann.status(Method::POST, "/articles", article("How to train?", &["a", "b"])).await,
        201
    );
    assert_eq!(ann.status(Method::POST, "/articles", article("Second", &["b", "c"])).await, 201);
    join_all(readers.iter().map(async |reader| {
        reader.post("/profiles/ann/follow", Value::Null).await;
        reader.post(&format!("{path}/favorite"), Value::Null).await;
        let comment = json!({ "comment": { "body": "I see" } });
        let comment = reader.post(&format!("{path}/comments"), comment).await;
        assert_eq!(comment["comment"]["author"]["username"].as_str().unwrap().len(), 7);
        assert_eq!(reader.get("/articles/feed").await["articlesCount"], 2);
        assert_eq!(reader.get("/profiles/ann").await["profile"]["following"], true);
    }))
    .await;

    let read = readers[0].get(path).await["article"].clone();
    assert_eq!(read["favoritesCount"], 10);
    assert_eq!(read["favorited"], true);
    assert_eq!(read["author"]["following"], true);
    assert_eq!(read["tagList"], json!(["a", "b"]));
    let read = nobody.get(path).await["article"].clone();
    assert_eq!((&read["favorited"], &read["author"]["following"]), (&json!(false), &json!(false)));

    articles(&nobody, &ann, &readers[0], path).await;
    comments(&nobody, &ann, &readers, path).await;
    service.end().await;
}

async fn accounts(nobody: &User, ann: &User) {
    let login = |name: &str, password: &str| json!({ "user": { "email": email(name), "password": password } });
    let logged_in = nobody.post("/users/login", login("ann", "ann")).await;
    assert_eq!(logged_in["user"]["username"], "ann");
    assert_eq!(nobody.status(Method::POST, "/users/login", login("ann", "wrong")).await, 401);
    assert_eq!(nobody.status(Method::POST, "/users/login", login("bob", "bob")).await, 401);
    let again = json!({ "user": { "username": "ann", "email": "other", "password": "x" } });
    let (status, errors) = nobody.send(Method::POST, "/users", again).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(errors, json!({ "errors": { "username": ["has been taken"] } }));

    assert_eq!(ann.get("/user").await["user"]["email"], "ann@example.com");
    assert_eq!(nobody.status(Method::GET, "/user", Value::Null).await, 401);
    let forged = User { token: Some("a.b.c".into()), ..nobody.clone() };
    assert_eq!(forged.status(Method::GET, "/user", Value::Null).await, 401);
    let update = json!({ "user": { "bio": "writes", "password": "new" } });
    let (_, updated) = ann.send(Method::PUT, "/user", update).await;
    assert_eq!(updated["user"]["bio"], "writes");
    assert_eq!(nobody.status(Method::POST, "/users/login", login("ann", "ann")).await, 401);
    nobody.post("/users/login", login("ann", "new")).await;
    assert_eq!(nobody.get("/profiles/ann").await["profile"]["bio"], "writes");
    assert_eq!(nobody.status(Method::GET, "/profiles/bob", Value::Null).await, 404);
}

async fn articles(nobody: &User, ann: &User, reader: &User, path: &str) {
    let count = async |query: &str| {
        nobody.get(&format!("/articles?{query}")).await["articlesCount"].as_u64().unwrap()
    };
    assert_eq!(count("tag=b").await, 2);
    assert_eq!(count("tag=c").await, 1);
    assert_eq!(count("author=ann&limit=1").await, 1);
    assert_eq!(count("author=reader1").await, 0);
    assert_eq!(count("favorited=reader1").await, 1);
    assert_eq!(nobody.get("/tags").await, json!({ "tags": ["a", "b", "c"] }));

    let update = json!({ "article": { "body": "longer" } });
    assert_eq!(reader.status(Method::PUT, path, update.clone()).await, 403);
    assert_eq!(ann.send(Method::PUT, path, update).await.1["article"]["body"], "longer");
    let same = article("Second", &[]);
    assert_eq!(ann.status(Method::POST, "/articles", same).await, 422);

    let favorite = format!("{path}/favorite");
    let (_, unliked) = reader.send(Method::DELETE, &favorite, Value::Null).await;
    assert_eq!(unliked["article"]["favoritesCount"], 9);
    reader.send(Method::DELETE, "/profiles/ann/follow", Value::Null).await;
    assert_eq!(reader.get("/articles/feed").await["articlesCount"], 0);

    assert_eq!(reader.status(Method::DELETE, "/articles/second", Value::Null).await, 403);
    assert_eq!(ann.status(Method::DELETE, "/articles/second", Value::Null).await, 204);
    assert_eq!(nobody.status(Method::GET, "/articles/second", Value::Null).await, 404);
}

async fn comments(nobody: &User, ann: &User, readers: &[User], path: &str) {
    let comments = format!("{path}/comments");
    let all = nobody.get(&comments).await["comments"].clone();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), readers.len());
    assert_eq!(
        ann.status(Method::POST, &comments, json!({ "comment": { "body": "" } })).await,
        422
    );
    let none = json!({ "comment": { "body": "x" } });
    assert_eq!(ann.status(Method::POST, "/articles/none/comments", none).await, 404);
    let first = format!("{comments}/{}", all[0]["id"]);
    assert_eq!(ann.status(Method::DELETE, &first, Value::Null).await, 403);
    let author = &all[0]["author"]["username"].as_str().unwrap()["reader".len()..];
    let author = &readers[author.parse::<usize>().unwrap()];
    assert_eq!(author.status(Method::DELETE, &first, Value::Null).await, 204);
    assert_eq!(author.status(Method::DELETE, &first, Value::Null).await, 404);
}

//! RETURNING * of a write that reads another table has that table's columns, too.

use super::both;
use crate::support::{refusal, rows};

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_returned_is_there_or_refused() {
    let [servers, files] = both().await;
    let update = "UPDATE notes n SET body = c.name FROM countries c WHERE c.code = n.body AND n.tenant = 5";
    let delete = "DELETE FROM notes n USING countries c WHERE c.name = n.body AND n.tenant = 5";
    for cluster in [&servers, &files] {
        let client = cluster.connect().await;
        rows(&client, "INSERT INTO notes (tenant, id, body) VALUES (5, 1, 'ch')").await;
        if std::ptr::eq(cluster, &files) {
            // SQLite returns what is written alone.
            assert_eq!(refusal(&client, &format!("{update} RETURNING *")).await.0, "0A000");
            assert_eq!(refusal(&client, &format!("{delete} RETURNING *")).await.0, "0A000");
            assert_ne!(refusal(&client, &format!("{update} RETURNING c.code")).await.0, "");
        } else {
            let returned = rows(&client, &format!("{update} RETURNING *")).await;
            assert_eq!(returned, [["5", "1", "Switzerland", "ch", "Switzerland"]]);
            rows(&client, "UPDATE notes SET body = 'ch' WHERE tenant = 5").await;
        }
        assert_eq!(rows(&client, &format!("{update} RETURNING n.body")).await, [["Switzerland"]]);
        assert_eq!(rows(&client, &format!("{delete} RETURNING n.id, n.body")).await, [["1", "Switzerland"]]);
        drop(client);
    }
    servers.close().await;
    files.close().await;
}
